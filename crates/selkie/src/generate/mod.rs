//! Continuing a text, token by token.

#[cfg(test)]
mod tests;

use std::{ops::ControlFlow, sync::Arc};

use selkie_model::Choice;
use selkie_text::{Detokenizer, StopMatcher, StopRules, Tokenizer};
use web_time::{Duration, Instant};

use crate::{
    Error, Model, Result, SamplingParams, Session, block_on,
    sampling::{sample, uniform},
};

/// Tokens that an executor which chooses itself is asked for at once. A submit and its readback cost a GPU as much as a
/// small model's token; an eighth of that no longer matters, and the text still comes in short pieces.
const TOKENS_AT_ONCE: usize = 8;

/// How a text is continued.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// At most this many new tokens.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// The same seed gives the same text.
    pub seed: u64,
    /// Stop strings, found across token borders and left out of the text.
    pub stop: Vec<String>,
    /// Goes on after tokens that end a turn.
    pub ignore_eos: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self { max_tokens: 256, sampling: SamplingParams::default(), seed: 0, stop: vec![], ignore_eos: false }
    }
}

/// Why a continuation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A token that ends a turn, or a stop string.
    Stop,
    /// As many tokens as were allowed, or the context is full.
    Length,
    /// The caller said so.
    Cancelled,
}

impl Finish {
    /// The word in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::Cancelled => "cancelled",
        }
    }
}

/// What a generation tells its caller on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The prompt is being read: so many tokens of it are in, of so many that have to be computed.
    Prompt {
        /// Tokens that are in.
        read: usize,
        /// Tokens to read.
        of: usize,
    },
    /// The next piece of text. It may be empty: every token is an occasion to end the text.
    Text(&'a str),
}

/// Who hears of a generation's events, and may end it with [`ControlFlow::Break`].
pub type OnEvent<'a> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'a;

/// How long things took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timings {
    /// Prompt tokens that were computed; those that the session held already are not.
    pub prompt_tokens: usize,
    /// Reading them.
    pub prompt: Duration,
    /// Tokens after the first.
    pub decoded_tokens: usize,
    /// Making them.
    pub decode: Duration,
}

impl Timings {
    /// Prompt tokens a second.
    pub fn prompt_rate(&self) -> f64 {
        rate(self.prompt_tokens, self.prompt)
    }

    /// New tokens a second, the first not counted: it comes out of the prompt's pass.
    pub fn decode_rate(&self) -> f64 {
        rate(self.decoded_tokens, self.decode)
    }
}

fn rate(tokens: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
}

/// A continuation.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The new tokens, one that ended the text included.
    pub ids: Vec<u32>,
    /// Their text, without tokens that end a turn and without stop strings.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// How long it took.
    pub timings: Timings,
}

impl Model {
    /// Continues `prompt`. What the session shares with its beginning is not computed again; the session then holds the
    /// prompt and every new token but the last, which is [pending](Session::pending). `on_event` hears of the prompt's
    /// progress, gets the text as it comes, and may end it.
    ///
    /// A model without a tokenizer continues too, without text.
    ///
    /// # Errors
    /// Where the prompt is empty, does not fit or has ids outside the vocabulary, or options are out of range.
    pub fn generate(
        &mut self,
        session: &mut Session,
        prompt: &[u32],
        options: &GenerateOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Generated> {
        block_on(self.generate_async(session, prompt, options, on_event))
    }

    /// As [`generate`](Self::generate).
    ///
    /// # Errors
    /// As there.
    pub async fn generate_async(
        &mut self,
        session: &mut Session,
        prompt: &[u32],
        options: &GenerateOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Generated> {
        options.sampling.check()?;
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if prompt.len() > session.capacity {
            return Err(Error::PromptTooLong { tokens: prompt.len(), capacity: session.capacity });
        }
        let held = self.keep_common_async(session, prompt).await?;
        self.continue_with(session, &prompt[held..], options, on_event).await
    }

    /// Continues what the session holds: its pending tokens and `more` come first, then new ones, as
    /// [`generate`](Self::generate) makes them. In one go or in several, the tokens are the same.
    ///
    /// Penalties see the tokens that the session knows ([`Session::tokens`]).
    ///
    /// # Errors
    /// Where there are neither pending tokens nor `more`; and as `generate`.
    pub fn extend(
        &mut self,
        session: &mut Session,
        more: &[u32],
        options: &GenerateOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Generated> {
        block_on(self.extend_async(session, more, options, on_event))
    }

    /// As [`extend`](Self::extend).
    ///
    /// # Errors
    /// As there.
    pub async fn extend_async(
        &mut self,
        session: &mut Session,
        more: &[u32],
        options: &GenerateOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Generated> {
        options.sampling.check()?;
        let ids = [&session.pending, more].concat();
        self.continue_with(session, &ids, options, on_event).await
    }

    /// Reads `prompt` after what the session holds, and goes on from there.
    async fn continue_with(
        &mut self,
        session: &mut Session,
        prompt: &[u32],
        options: &GenerateOptions,
        on_event: &mut OnEvent<'_>,
    ) -> Result<Generated> {
        let vocab_size = self.spec.vocab_size;
        if let Some(&(id, _)) = options.sampling.logit_bias.iter().find(|(id, _)| *id as usize >= vocab_size) {
            return Err(selkie_model::Error::TokenId { id, vocab_size }.into());
        }
        let rules = StopRules { ids: self.end_tokens(options.ignore_eos)?, strings: options.stop.clone() };
        let mut output = TextOut {
            end: &rules.ids,
            detokenizer: self.detokenizer()?,
            matcher: rules.matcher(),
            text: String::new(),
            on_event,
        };
        let mut timings = Timings { prompt_tokens: prompt.len(), ..Timings::default() };
        let mut ids = vec![];

        let started = Instant::now();
        let (held, of) = (session.len(), prompt.len());
        let mut go_on = |read| (output.on_event)(Event::Prompt { read, of }).is_continue();
        let Some(logits) = self.feed_with_async(session, prompt, &mut go_on).await? else {
            session.pending = prompt[session.len() - held..].to_vec();
            return Ok(Generated { ids, text: String::new(), finish: Finish::Cancelled, timings });
        };
        timings.prompt = started.elapsed();

        let started = Instant::now();
        let mut chooser = Chooser::new(options, &rules);
        let mut chosen = if options.max_tokens > 0 { vec![chooser.choose(&logits, session)] } else { vec![] };
        let finish = 'text: loop {
            // The session holds all that were chosen but the last.
            let Some(&last) = chosen.last() else { break Finish::Length };
            for (at, &id) in chosen.iter().enumerate() {
                ids.push(id);
                let told = output.take(id);
                if !matches!(told, Ok(None)) {
                    session.take_back(chosen.len() - 1 - at)?;
                }
                if let Some(finish) = told.map_err(|e| Error::text(self.name(), e))? {
                    break 'text finish;
                }
            }
            let room = (options.max_tokens - ids.len()).min(session.capacity - session.len());
            chosen = if room > 0 { chooser.next(self, session, last, room).await? } else { vec![] };
            self.pause().await;
        };
        timings.decode = started.elapsed();
        timings.decoded_tokens = ids.len().saturating_sub(1);
        output.finish();
        Ok(Generated { ids, text: output.text, finish, timings })
    }

    /// Feeds `last` and what the executor chooses after it, several tokens at once: gives at least one and at most `n`, the
    /// first of `choice.stop` being the last. The session then holds all but the last, which is pending. `None` where the
    /// executor leaves choosing to its caller, always or with these parameters; nothing has happened then.
    ///
    /// # Errors
    /// Where `last` is outside the vocabulary, `n` tokens do not fit, or the pass fails.
    pub fn choose(
        &mut self,
        session: &mut Session,
        last: u32,
        n: usize,
        choice: &Choice<'_>,
    ) -> Result<Option<Vec<u32>>> {
        block_on(self.choose_async(session, last, n, choice))
    }

    /// As [`choose`](Self::choose).
    ///
    /// # Errors
    /// As there.
    pub async fn choose_async(
        &mut self,
        session: &mut Session,
        last: u32,
        n: usize,
        choice: &Choice<'_>,
    ) -> Result<Option<Vec<u32>>> {
        let n = n.min(TOKENS_AT_ONCE);
        let chosen = self.executor.generate(last, n, choice, &mut session.state);
        let Some(chosen) = chosen.await? else { return Ok(None) };
        let Some((&pending, fed)) = chosen.split_last().filter(|_| chosen.len() <= n) else {
            let what = format!("{} tokens were chosen, where 1 to {n} are asked for", chosen.len());
            return Err(selkie_model::Error::Op { op: "generate".into(), what }.into());
        };
        session.tokens.push(last);
        session.tokens.extend_from_slice(fed);
        session.pending = vec![pending];
        Ok(Some(chosen))
    }

    fn end_tokens(&self, ignore_eos: bool) -> Result<Vec<u32>> {
        if ignore_eos {
            return Ok(vec![]);
        }
        let tokenizer = self.text().tokenizer_if_any()?;
        let mut ids = tokenizer.map_or(vec![], |t| t.end_tokens().to_vec());
        ids.extend(self.opened().checkpoint.mbjs.as_ref().and_then(|config| config.eos_id()));
        Ok(ids)
    }

    fn detokenizer(&self) -> Result<Option<Detokenizer<Arc<Tokenizer>>>> {
        Ok(self.text().tokenizer_if_any()?.map(|tokenizer| Detokenizer::new(tokenizer, true).continuing()))
    }
}

/// Chooses the tokens of one continuation, or has the executor choose them.
struct Chooser<'a> {
    choice: Choice<'a>,
    /// Nothing here has to look at a token before the next is computed, and the executor has not declined.
    by_executor: bool,
}

impl<'a> Chooser<'a> {
    fn new(options: &'a GenerateOptions, rules: &'a StopRules) -> Self {
        let choice = Choice { params: &options.sampling, seed: options.seed, sequence: 0, stop: &rules.ids };
        let stop_strings = options.stop.iter().any(|stop| !stop.is_empty());
        Self { choice, by_executor: !stop_strings && !options.sampling.changes_logits() }
    }

    /// The token after those that the session holds, by the logits of the last one. It is pending then.
    fn choose(&self, logits: &[f32], session: &mut Session) -> u32 {
        let Choice { params, seed, sequence, .. } = self.choice;
        let id = sample(logits, params, &session.tokens, uniform(seed, sequence, session.len() as u64));
        session.pending = vec![id];
        id
    }

    /// Feeds `last`, which is pending, and chooses: one token, or up to `room` where the executor does it. The session then
    /// holds them all but the last, which is pending.
    async fn next(&mut self, model: &mut Model, session: &mut Session, last: u32, room: usize) -> Result<Vec<u32>> {
        if self.by_executor {
            if let Some(chosen) = model.choose_async(session, last, room, &self.choice).await? {
                return Ok(chosen);
            }
            self.by_executor = false;
        }
        let logits = model.feed_async(session, &[last]).await?;
        Ok(vec![self.choose(&logits, session)])
    }
}

/// Tokens on their way out, as text past the stop strings.
struct TextOut<'a> {
    end: &'a [u32],
    detokenizer: Option<Detokenizer<Arc<Tokenizer>>>,
    matcher: StopMatcher,
    text: String,
    on_event: &'a mut OnEvent<'a>,
}

impl TextOut<'_> {
    /// Takes the next token; says why it is the last one, where it is.
    fn take(&mut self, id: u32) -> Result<Option<Finish>, selkie_text::Error> {
        if self.end.contains(&id) {
            return Ok(Some(Finish::Stop));
        }
        let text = match &mut self.detokenizer {
            Some(detokenizer) => detokenizer.push(id)?,
            None => "",
        };
        let step = self.matcher.push(text);
        self.text.push_str(&step.emit);
        let flow = (self.on_event)(Event::Text(&step.emit));
        Ok(match flow {
            _ if step.stopped => Some(Finish::Stop),
            ControlFlow::Break(()) => Some(Finish::Cancelled),
            ControlFlow::Continue(()) => None,
        })
    }

    fn finish(&mut self) {
        if !self.matcher.stopped() {
            let rest = self.detokenizer.as_mut().map_or("", |d| d.finish());
            let mut held = self.matcher.push(rest).emit;
            held.push_str(&self.matcher.finish());
            self.text.push_str(&held);
            let _ = (self.on_event)(Event::Text(&held));
        }
    }
}
