//! `selkie chat`: a conversation in the terminal, or one answer.

use std::{
    io::{self, Write},
    ops::ControlFlow,
};

use anyhow::Result;
use selkie::{Chat, GenerateOptions, Generated, Message, Model};

use crate::{
    args::{Run, Sampling, text_or_stdin},
    commands::generate::summary,
    open, terminal,
};

/// Arguments of `chat`.
#[derive(clap::Args)]
pub struct Args {
    /// What is asked; without it there is a conversation
    prompt: Option<String>,
    /// A name, `hf:OWNER/REPO/FILE`, or a path
    #[arg(short, long, default_value = selkie::models::DEFAULT)]
    model: String,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// At most this many tokens an answer
    #[arg(short = 'n', long = "max-tokens", value_name = "N", default_value_t = 1024)]
    max_tokens: usize,
    /// Tokens that the conversation may take [default: the model's own, 8192 at most]
    #[arg(long, value_name = "N")]
    context: Option<usize>,
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    run: Run,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let options = GenerateOptions {
        max_tokens: args.max_tokens,
        sampling: args.sampling.params()?,
        seed: args.sampling.seed(),
        stop: args.sampling.stop.clone(),
        ignore_eos: false,
    };
    let prompt = text_or_stdin(args.prompt.clone())?;
    let mut model = open::model(&args.model, &args.run, false)?;
    let capacity = args.context.unwrap_or_else(|| model.spec().context.unwrap_or(8192).min(8192));
    let mut chat = Chat::new(&model, capacity)?;
    chat.messages.extend(args.system.map(|text| Message::new("system", text)));
    terminal::catch_interrupts();
    match prompt {
        Some(prompt) => answer(&mut chat, &mut model, prompt.trim_end_matches('\n'), &options).map(|_| ()),
        None => anyhow::bail!("interactive chat comes next"),
    }
}

/// Says `text` and prints the answer as it comes.
fn answer(chat: &mut Chat, model: &mut Model, text: &str, options: &GenerateOptions) -> Result<Generated> {
    if text.trim().is_empty() {
        return Err(selkie::Error::EmptyPrompt.into());
    }
    let mut out = io::stdout().lock();
    let mut failed = None;
    let generated = chat.say(model, text, options, &mut |text| {
        failed = out.write_all(text.as_bytes()).and_then(|()| out.flush()).err();
        if failed.is_some() || terminal::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    writeln!(out)?;
    terminal::dim(&summary(&generated));
    Ok(generated)
}
