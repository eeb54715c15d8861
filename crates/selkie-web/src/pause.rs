//! A moment for the worker's messages: a stop is heard then.

use std::cell::OnceCell;

use js_sys::{Function, Promise};
use selkie::formats::LocalFuture;
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::JsFuture;
use web_sys::MessageChannel;

thread_local! {
    /// Timers of a browser wait four milliseconds; a message to oneself comes at once, behind those that came before.
    static CHANNEL: OnceCell<MessageChannel> = const { OnceCell::new() };
}

/// Lets messages come in.
pub fn pause() -> LocalFuture<'static, ()> {
    Box::pin(async {
        let passed = Promise::new(&mut |resolve: Function, _| {
            CHANNEL.with(|channel| {
                let channel = match channel.get() {
                    Some(channel) => channel.clone(),
                    None => match MessageChannel::new() {
                        Ok(new) => channel.get_or_init(|| new).clone(),
                        Err(_) => return drop(resolve.call0(&JsValue::NULL)),
                    },
                };
                channel.port2().set_onmessage(Some(&resolve));
                if channel.port1().post_message(&JsValue::NULL).is_err() {
                    drop(resolve.call0(&JsValue::NULL));
                }
            });
        });
        // It never rejects.
        let _ = JsFuture::from(passed).await;
    })
}
