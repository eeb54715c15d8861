//! `selkie generate`: continue a text.

use std::path::{Path, PathBuf};

use anyhow::Result;
use selkie::{GenerateOptions, Generated, Message, Model, SavedState, Session};
use serde_json::json;

use crate::{
    answer::Answer,
    args::{Ids, Run, Sampling, text_or_stdin, usage},
    open, terminal, whole_file,
};

/// Arguments of `generate`.
#[derive(clap::Args)]
pub struct Args {
    /// A name, `hf:OWNER/REPO/FILE`, or a path
    model: String,
    /// What is continued; read from standard input where it is missing
    #[arg(conflicts_with = "ids")]
    prompt: Option<String>,
    /// Token ids in place of a prompt: 1,2,3
    #[arg(long)]
    ids: Option<Ids>,
    /// At most this many new tokens
    #[arg(short = 'n', long = "max-tokens", value_name = "N", default_value_t = 256)]
    max_tokens: usize,
    /// No chat template: the text itself is continued
    #[arg(long)]
    raw: bool,
    /// Go on after tokens that end a turn
    #[arg(long)]
    ignore_eos: bool,
    /// Keep the model's state after the last token in a file, without the text
    #[arg(long, value_name = "FILE")]
    save_state: Option<PathBuf>,
    /// Go on from a state in a file. PROMPT or --ids follow its tokens as they are, without a template; without either,
    /// nothing is read and its last token is continued. Penalties see the tokens since then
    #[arg(long, value_name = "FILE")]
    load_state: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    run: Run,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let options = GenerateOptions {
        max_tokens: args.max_tokens,
        sampling: args.sampling.params(1.0)?,
        seed: args.sampling.seed(),
        stop: args.sampling.stop.clone(),
        ignore_eos: args.ignore_eos,
    };
    // Going on from a state, no prompt is a prompt too: standard input is left alone.
    let asks_stdin = args.ids.is_none() && args.load_state.is_none();
    let text = if asks_stdin { text_or_stdin(args.prompt)? } else { args.prompt };
    if asks_stdin && text.is_none() {
        return usage("there is nothing to continue: give a PROMPT, --ids, or text on standard input");
    }
    let mut model = open::model_for(&args.model, &args.run, false, Some(args.max_tokens))?;
    if let Some(file) = &args.save_state {
        whole_file::refuse_input(file, model.opened().files.all())?;
    }
    let saved = args.load_state.as_deref().map(SavedState::open).transpose()?;
    let prompt = match (args.ids, text, &saved) {
        (Some(ids), ..) => ids.0,
        (None, Some(text), Some(_)) => model.text().encode(&text, false)?,
        (None, None, Some(_)) => vec![],
        (None, text, None) => prompt_ids(&model, &text.unwrap_or_default(), args.raw)?,
    };
    let mut session = match &saved {
        Some(saved) => {
            let held = saved.positions.saturating_add(saved.pending.len());
            model.restore(saved, room(&model, held.saturating_add(prompt.len()), args.max_tokens))?
        }
        None => model.session(room(&model, prompt.len(), args.max_tokens))?,
    };
    terminal::catch_interrupts();
    let mut answer = Answer::new(!args.json);
    let generated = model.extend(&mut session, &prompt, &options, &mut |event| answer.hear(event));
    answer.end()?;
    let generated = generated?;
    if let Some(file) = &args.save_state {
        save(file, &model, &session)?;
    }
    if args.json {
        terminal::print_line(to_json(&generated, generated.timings.prompt_tokens))?;
    } else if model.text().tokenizer_if_any()?.is_none() {
        // Without a tokenizer the ids are the result.
        let ids: Vec<String> = generated.ids.iter().map(u32::to_string).collect();
        terminal::print_line(ids.join(","))?;
    } else {
        terminal::dim(&summary(&generated));
    }
    Ok(())
}

/// Positions for `held` tokens and `more`. The model's own context is where a text ends, however many are asked for.
fn room(model: &Model, held: usize, more: usize) -> usize {
    let wanted = held.saturating_add(more);
    model.spec().context.filter(|&context| context > 0).map_or(wanted, |context| wanted.min(context))
}

/// Keeps the state, without its tokens: where no layer is an attention, the file has the same size whatever was said.
fn save(file: &Path, model: &Model, session: &Session) -> Result<()> {
    let state = SavedState { ids: None, ..model.snapshot(session)? };
    whole_file::write(file, |out| Ok(state.write(out)?))
}

/// The prompt's tokens: through the chat template where the model has one, unless `raw`.
fn prompt_ids(model: &Model, text: &str, raw: bool) -> Result<Vec<u32>> {
    if text.is_empty() {
        return Err(selkie::Error::EmptyPrompt.into());
    }
    if !raw && model.text().chat_template()?.is_some() {
        let messages = selkie::messages_json(&[Message::new("user", text)]);
        let prompt = model.text().render_chat(&messages, None, true)?;
        return Ok(model.text().encode_prompt(&prompt)?);
    }
    Ok(model.text().encode(text, true)?)
}

/// The object that `--json` prints.
pub fn to_json(generated: &Generated, prompt_tokens: usize) -> serde_json::Value {
    let t = &generated.timings;
    json!({
        "ids": generated.ids,
        "text": generated.text,
        "prompt_tokens": prompt_tokens,
        "finish": generated.finish.name(),
        "timings": {
            "prompt_ms": t.prompt.as_secs_f64() * 1e3,
            "prompt_tokens_per_second": t.prompt_rate(),
            "decode_ms": t.decode.as_secs_f64() * 1e3,
            "decode_tokens_per_second": t.decode_rate(),
        },
    })
}

/// Tokens, rates and the time to the first token, in one line.
pub fn summary(generated: &Generated) -> String {
    let t = &generated.timings;
    format!(
        "{} prompt tokens at {:.0}/s, {} new at {:.1}/s, first after {:.0} ms",
        t.prompt_tokens,
        t.prompt_rate(),
        generated.ids.len(),
        t.decode_rate(),
        t.prompt.as_secs_f64() * 1e3,
    )
}
