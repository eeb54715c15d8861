//! `selkie chat`: a conversation in the terminal, or one answer.

mod conversation;
mod input;
mod saved;
mod verb;

use std::io::{self, IsTerminal};

use anyhow::Result;
use selkie::{Chat, GenerateOptions, Message};

use crate::{
    args::{Run, Sampling, read_stdin, usage},
    open, terminal,
};
use conversation::Conversation;

/// Small models, the default one among them, else fall into repeating themselves.
const REPETITION_PENALTY: f32 = 1.1;

/// Arguments of `chat`.
#[derive(clap::Args)]
pub struct Args {
    /// What is asked. Without it there is a conversation, or, where something is piped in, an answer to that
    prompt: Option<String>,
    /// A `-` after PROMPT adds what is piped in, after an empty line. Without it, standard input is left alone: it may
    /// be one that never ends
    #[arg(value_name = "-", value_parser = ["-"], hide_possible_values = true)]
    piped: Option<String>,
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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    context: Option<u32>,
    /// Print one answer as a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    run: Run,
}

/// What a conversation may take where nobody says, for the sake of memory.
const CONTEXT: usize = 8192;

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let options = GenerateOptions {
        max_tokens: args.max_tokens,
        sampling: args.sampling.params(REPETITION_PENALTY)?,
        seed: args.sampling.seed(),
        stop: args.sampling.stop.clone(),
        ignore_eos: false,
    };
    let prompt = prompt(args.prompt, args.piped.is_some())?;
    if args.json && prompt.is_none() {
        return usage("--json prints one answer: it needs a PROMPT, or text on standard input");
    }
    let asked = args.context.map(|n| n as usize);
    let model = open::model_for(&args.model, &args.run, false, asked)?;
    let capacity = asked.unwrap_or_else(|| model.spec().context.unwrap_or(CONTEXT).min(CONTEXT));
    let mut chat = Chat::new(&model, capacity)?;
    chat.messages.extend(args.system.map(|text| Message::new("system", text)));
    let mut conversation = Conversation { chat, model, options, name: args.model };
    match prompt {
        Some(prompt) => {
            terminal::catch_interrupts();
            if args.json { conversation.say_json(&prompt) } else { conversation.say(&prompt) }
        }
        None => conversation.hold(),
    }
}

/// What is asked: the argument, what is piped in, or both; `None` where a person is there to ask.
fn prompt(argument: Option<String>, piped: bool) -> Result<Option<String>> {
    let text = match argument {
        Some(dash) if dash == "-" => read_stdin()?,
        Some(argument) if piped => format!("{argument}\n\n{}", read_stdin()?),
        Some(argument) => argument,
        None if io::stdin().is_terminal() => return Ok(None),
        None => read_stdin()?,
    };
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}
