//! Memory that a task needs for a moment, kept by its thread.
#![allow(unsafe_code)]

use std::cell::RefCell;

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

thread_local! {
    /// Buffers not in use: a kernel inside of another takes a second one.
    static FREE: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with `len` f32, aligned to 64 bytes, of any content.
pub(crate) fn with_scratch<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut lines = FREE.with_borrow_mut(Vec::pop).unwrap_or_default();
    if lines.len() < len.div_ceil(16) {
        lines.resize(len.div_ceil(16), Line([0.0; 16]));
    }
    // SAFETY: a line is sixteen f32, and there are enough of them.
    let result = f(unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), len) });
    FREE.with_borrow_mut(|free| free.push(lines));
    result
}
