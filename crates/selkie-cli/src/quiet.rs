//! Keeps drivers from talking on standard error.
#![allow(unsafe_code)]

use std::env;

/// Without a desktop session, Mesa's layer that orders devices for it complains to standard error, twice, that there is none.
/// It has nothing to do then, and this is how it is left out. To be called before there are other threads.
pub fn quieten_drivers() {
    if env::var_os("XDG_RUNTIME_DIR").is_none() {
        // SAFETY: this is the first thing that `main` does: no other thread reads the environment yet.
        unsafe { env::set_var("NODEVICE_SELECT", "1") };
    }
}
