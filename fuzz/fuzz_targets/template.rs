//! Any text as a chat template: refused in one line, or rendered within its budget.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selkie_text::{ChatTemplate, CivilTime, RenderInput};

fuzz_target!(|source: &str| {
    let messages = serde_json::json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]);
    let input = RenderInput { now: Some(CivilTime::from_unix(0)), ..RenderInput::new(&messages) };
    if let Err(error) = ChatTemplate::new("fuzz", source).and_then(|template| template.render(&input)) {
        assert!(!error.to_string().contains('\n'));
    }
});
