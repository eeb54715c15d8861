//! Warnings go to the console; the last one is kept, since it may say why a model does not run on the GPU.

use std::{cell::RefCell, fmt::Write};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

struct Console;

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            // Writing to a string does not fail.
            let _ = write!(self.0, "{value:?}");
        }
    }
}

impl Subscriber for Console {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        web_sys::console::warn_1(&format!("selkie: {}", message.0).into());
        LAST.set(Some(message.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Installs it. A panic ends the module: its words go to the console before that.
pub fn install() {
    std::panic::set_hook(Box::new(|panic| web_sys::console::error_1(&format!("selkie: {panic}").into())));
    // A second module instance of the same page has its own.
    let _ = tracing::subscriber::set_global_default(Console);
}

/// The last warning, once.
pub fn take_last() -> Option<String> {
    LAST.take()
}
