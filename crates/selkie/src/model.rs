//! A model, open: its weights, an executor, and its text side.

use std::{
    cell::{Cell, OnceCell},
    fmt,
    path::PathBuf,
    rc::Rc,
};

use selkie_formats::LocalFuture;
use selkie_model::{Batch, Executor, ModelSpec, OpTime, Sequence, State, Want, Watch};
use web_time::{Duration, Instant};

use crate::{Backend, Error, Opened, Result, Session, TextSide, backend, block_on};

/// How a model is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// What runs it.
    pub backend: Backend,
    /// Which GPU, by a part of its name or its number in the list of devices; the first where `None`. Only for
    /// [`Backend::Gpu`].
    pub device: Option<String>,
    /// Threads of the CPU executor; as many as there are cores where `None`.
    pub threads: Option<usize>,
    /// f32 activations and caches, for comparison with references.
    pub exact: bool,
    /// Positions that the first session will have: a GPU refuses a model beside which they would not fit before it is
    /// loaded. A session may have others.
    pub context: Option<usize>,
    /// Overrides the configuration beside the weights.
    pub config: Option<PathBuf>,
    /// Weights are read once, as a GPU takes them, and never all of them in memory: for files that are far away. They are
    /// not looked at for values that are no numbers then.
    pub streamed: bool,
    /// Bytes that a GPU is taken to have, where it does not tell.
    pub gpu_memory: Option<u64>,
    /// Whether the page has seen to it that its GPU comes with subgroups, which wgpu cannot ask a browser for.
    pub subgroups: bool,
    /// Who watches the load, and may end it.
    pub watch: Watch,
    /// How often work stops for a moment; never where it is not said.
    pub pace: Option<Pace>,
}

/// A browser has one thread for the work and for whoever wants to stop it: now and then the work lets it hear.
#[derive(Clone)]
pub struct Pace {
    /// How long work goes on, about.
    pub step: Duration,
    /// What it waits for then.
    pub pause: Rc<dyn Fn() -> LocalFuture<'static, ()>>,
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a pause every {:?}", self.step)
    }
}

/// Rows of one forward pass while a prompt is read: enough to fill a matrix product, few enough to cancel in time.
const PREFILL_ROWS: usize = 512;
/// The least of them, and the first ones', where there is a [`Pace`].
const LEAST_ROWS: usize = 8;
const FIRST_ROWS: usize = 32;

/// A model that is ready to run.
pub struct Model {
    pub(crate) spec: ModelSpec,
    pub(crate) executor: Box<dyn Executor>,
    #[cfg(feature = "gpu")]
    gpu: Option<Rc<selkie_gpu::Engine>>,
    opened: Rc<Opened>,
    text: TextSide,
    id: OnceCell<String>,
    pace: Option<Pace>,
    /// Rows that one forward pass takes of a prompt.
    block_rows: Cell<usize>,
}

/// What runs the model comes twice: waiting for the result, and ending in `_async`, for a browser's thread cannot wait.
impl Model {
    /// Opens the model at `path`: a `.gguf`, a `.safetensors` or `.mbjs` beside its `config.json`, or a folder with these.
    ///
    /// # Errors
    /// Where files are missing or malformed, the family is not known, or the backend is not there.
    #[cfg(feature = "native")]
    pub fn open(path: &std::path::Path, options: &OpenOptions) -> Result<Self> {
        Self::from_opened(crate::ModelFiles::find(path, options.config.as_deref())?.open()?, options)
    }

    /// As [`open`](Self::open), from files whose headers are read already.
    ///
    /// # Errors
    /// As there.
    pub fn from_opened(opened: Opened, options: &OpenOptions) -> Result<Self> {
        block_on(Self::from_opened_async(opened, options))
    }

    /// As [`from_opened`](Self::from_opened).
    ///
    /// # Errors
    /// As there.
    pub async fn from_opened_async(opened: Opened, options: &OpenOptions) -> Result<Self> {
        let spec = opened.spec()?;
        let runner = backend::runner(&opened, &spec, options).await?;
        let opened = Rc::new(opened);
        let block_rows = Cell::new(if options.pace.is_some() { FIRST_ROWS } else { PREFILL_ROWS });
        Ok(Self {
            text: TextSide::new(opened.clone()),
            opened,
            spec,
            executor: runner.executor,
            #[cfg(feature = "gpu")]
            gpu: runner.gpu,
            id: OnceCell::new(),
            pace: options.pace.clone(),
            block_rows,
        })
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.opened.files.name
    }

    /// What saved states know it by: see [`Opened::model_id`]. Computed when it is first asked for.
    ///
    /// # Errors
    /// Where the files cannot be read.
    pub fn id(&self) -> Result<&str> {
        block_on(self.id_async())
    }

    /// As [`id`](Self::id).
    ///
    /// # Errors
    /// As there.
    pub async fn id_async(&self) -> Result<&str> {
        if let Some(id) = self.id.get() {
            return Ok(id);
        }
        let id = self.opened.model_id_async().await?;
        Ok(self.id.get_or_init(|| id))
    }

    /// Its schedule of layers.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// The files it was opened from.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// The executor's name.
    pub fn backend(&self) -> &'static str {
        self.executor.name()
    }

    /// What it runs on, for people.
    pub fn device(&self) -> String {
        self.executor.device()
    }

    /// With something around its executor.
    #[cfg(test)]
    pub(crate) fn with_executor(self, wrap: impl FnOnce(Box<dyn Executor>) -> Box<dyn Executor>) -> Self {
        Self { executor: wrap(self.executor), ..self }
    }

    /// The model on its GPU, where it is on one.
    #[cfg(feature = "gpu")]
    pub fn gpu(&self) -> Option<&selkie_gpu::Engine> {
        self.gpu.as_deref()
    }

    /// Switches the measuring of every op's time on, from nothing, or off.
    pub fn profile(&mut self, on: bool) {
        self.executor.profile(on);
    }

    /// The time of each kind of op since [`profile`](Self::profile) or the last call; empty where nothing is measured.
    pub fn take_profile(&mut self) -> Vec<OpTime> {
        self.executor.take_profile()
    }

    /// Its tokenizer and chat template.
    pub fn text(&self) -> &TextSide {
        &self.text
    }

    /// A sequence without tokens, with room for `capacity` of them.
    ///
    /// # Errors
    /// Where the model was made for fewer positions, or there is no memory for them.
    pub fn session(&self, capacity: usize) -> Result<Session> {
        block_on(self.session_async(capacity))
    }

    /// As [`session`](Self::session).
    ///
    /// # Errors
    /// As there.
    pub async fn session_async(&self, capacity: usize) -> Result<Session> {
        self.check_context(capacity)?;
        Ok(Session::new(self.new_state(capacity).await?, capacity))
    }

    async fn new_state(&self, capacity: usize) -> Result<State> {
        Ok(self.executor.new_state(capacity).await?)
    }

    pub(crate) fn check_context(&self, capacity: usize) -> Result<()> {
        // Only attention has seen no further than that; a recurrent state neither grows nor counts.
        let limit = self.spec.context.filter(|_| self.spec.has_attention());
        match limit.filter(|&context| context > 0 && capacity > context) {
            Some(context) => Err(Error::PastContext { model: self.name().to_owned(), wanted: capacity, context }),
            None => Ok(()),
        }
    }

    /// Takes the session back to the longest beginning that `tokens` shares with what it holds, and gives how long that
    /// is. At least one of `tokens` is left to compute, since its logits are wanted. Where a recurrent state cannot go
    /// back that far, the session starts over: nothing is shared then.
    ///
    /// # Errors
    /// Where there is no memory for a new state.
    pub fn keep_common(&self, session: &mut Session, tokens: &[u32]) -> Result<usize> {
        block_on(self.keep_common_async(session, tokens))
    }

    /// As [`keep_common`](Self::keep_common).
    ///
    /// # Errors
    /// As there.
    pub async fn keep_common_async(&self, session: &mut Session, tokens: &[u32]) -> Result<usize> {
        let shared = session.shared(tokens).min(tokens.len().saturating_sub(1));
        self.truncate(session, shared).await
    }

    /// Makes the session forget everything.
    ///
    /// # Errors
    /// Where there is no memory for a new state.
    pub fn clear(&self, session: &mut Session) -> Result<()> {
        block_on(self.clear_async(session))
    }

    /// As [`clear`](Self::clear).
    ///
    /// # Errors
    /// As there.
    pub async fn clear_async(&self, session: &mut Session) -> Result<()> {
        self.truncate(session, 0).await.map(|_| ())
    }

    /// Lets others have the thread, where somebody asked for that.
    pub(crate) async fn pause(&self) {
        if let Some(pace) = &self.pace {
            (pace.pause)().await;
        }
    }

    /// Sizes the next block of a prompt, where blocks should take no longer than a step.
    fn follow(&self, rows: usize, took: Duration) {
        let Some(pace) = self.pace.as_ref().filter(|_| rows >= LEAST_ROWS) else { return };
        let fit = rows as f64 * pace.step.as_secs_f64() / took.as_secs_f64().max(1e-4);
        // Growing is careful: a small block says little of a large one.
        let most = PREFILL_ROWS.min(2 * self.block_rows.get());
        self.block_rows.set((fit as usize / LEAST_ROWS * LEAST_ROWS).clamp(LEAST_ROWS, most));
    }

    /// Takes the session back to its first `len` tokens, or to none; gives how many it is.
    async fn truncate(&self, session: &mut Session, len: usize) -> Result<usize> {
        let kept = match session.state.rewind(len) {
            Ok(()) => len,
            Err(selkie_model::Error::Rewind { .. } | selkie_model::Error::LostState) => {
                session.state = self.new_state(session.capacity).await?;
                0
            }
            Err(error) => return Err(error.into()),
        };
        if kept == 0 {
            session.before = Default::default();
        }
        session.tokens.truncate(kept - session.before.count);
        session.pending.clear();
        Ok(kept)
    }

    /// Appends `ids` to what the session's state holds and gives the last one's logits, `[vocab_size]`. Tokens that were
    /// [pending](Session::pending) are forgotten: who wants them gives them.
    ///
    /// # Errors
    /// Where there are no ids, one is outside the vocabulary, or they do not fit.
    pub fn feed(&mut self, session: &mut Session, ids: &[u32]) -> Result<Vec<f32>> {
        block_on(self.feed_async(session, ids))
    }

    /// As [`feed`](Self::feed).
    ///
    /// # Errors
    /// As there.
    pub async fn feed_async(&mut self, session: &mut Session, ids: &[u32]) -> Result<Vec<f32>> {
        Ok(self.feed_with_async(session, ids, &mut |_| true).await?.unwrap_or_default())
    }

    /// As [`feed`](Self::feed); `go_on` is asked between blocks, with how many tokens are in. `None` where it says no.
    ///
    /// # Errors
    /// As there.
    pub fn feed_with(
        &mut self,
        session: &mut Session,
        ids: &[u32],
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Option<Vec<f32>>> {
        block_on(self.feed_with_async(session, ids, go_on))
    }

    /// As [`feed_with`](Self::feed_with).
    ///
    /// # Errors
    /// As there.
    pub async fn feed_with_async(
        &mut self,
        session: &mut Session,
        ids: &[u32],
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Option<Vec<f32>>> {
        if ids.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let tokens = session.len() + ids.len();
        if tokens > session.capacity {
            return Err(Error::PromptTooLong { tokens, capacity: session.capacity });
        }
        let mut logits = vec![];
        let mut read = 0;
        while read < ids.len() {
            if read > 0 {
                self.pause().await;
                if !go_on(read) {
                    return Ok(None);
                }
            }
            let piece = &ids[read..ids.len().min(read + self.block_rows.get())];
            read += piece.len();
            let outputs = if read == ids.len() { vec![piece.len() - 1] } else { vec![] };
            let started = Instant::now();
            logits = self.rows_async(session, piece, &outputs, Want::Logits).await?;
            self.follow(piece.len(), started.elapsed());
        }
        Ok(Some(logits))
    }

    /// Appends `ids`, all in one forward pass, and gives what is wanted of the rows `outputs`. Pending tokens are forgotten.
    ///
    /// # Errors
    /// Where an id is outside the vocabulary, or they do not fit.
    pub fn rows(&mut self, session: &mut Session, ids: &[u32], outputs: &[usize], want: Want) -> Result<Vec<f32>> {
        block_on(self.rows_async(session, ids, outputs, want))
    }

    /// As [`rows`](Self::rows).
    ///
    /// # Errors
    /// As there.
    pub async fn rows_async(
        &mut self,
        session: &mut Session,
        ids: &[u32],
        outputs: &[usize],
        want: Want,
    ) -> Result<Vec<f32>> {
        let sequences = [Sequence { rows: 0..ids.len() }];
        let batch = Batch { ids, sequences: &sequences, outputs, want };
        let mut states = [&mut session.state];
        let output = self.executor.forward(&batch, &mut states).await?;
        session.tokens.extend_from_slice(ids);
        session.pending.clear();
        Ok(output.values)
    }

    /// The logits of every position of several sequences, fed `piece` tokens of each at a time through their states, all of
    /// them in one batch: `[tokens, vocab_size]` for each.
    ///
    /// # Errors
    /// Where a list is empty, an id is outside the vocabulary, or the pass fails.
    pub fn batch_logits(&mut self, lists: &[Vec<u32>], piece: usize) -> Result<Vec<Vec<f32>>> {
        block_on(self.batch_logits_async(lists, piece))
    }

    /// As [`batch_logits`](Self::batch_logits).
    ///
    /// # Errors
    /// As there.
    pub async fn batch_logits_async(&mut self, lists: &[Vec<u32>], piece: usize) -> Result<Vec<Vec<f32>>> {
        let mut states = Vec::with_capacity(lists.len());
        for list in lists {
            states.push(self.new_state(list.len()).await?);
        }
        let mut logits = vec![vec![]; lists.len()];
        let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
        for at in (0..longest).step_by(piece.max(1)) {
            let (mut ids, mut sequences, mut into, mut own) = (vec![], vec![], vec![], vec![]);
            for ((list, state), logits) in lists.iter().zip(&mut states).zip(&mut logits) {
                if let Some(next) =
                    list.get(at..list.len().min(at.saturating_add(piece))).filter(|next| !next.is_empty())
                {
                    sequences.push(Sequence { rows: ids.len()..ids.len() + next.len() });
                    ids.extend_from_slice(next);
                    own.push(state);
                    into.push(logits);
                }
            }
            let outputs: Vec<usize> = (0..ids.len()).collect();
            let batch = Batch { ids: &ids, sequences: &sequences, outputs: &outputs, want: Want::Logits };
            let values = self.executor.forward(&batch, &mut own).await?.values;
            let width = self.spec.vocab_size;
            for (sequence, logits) in sequences.iter().zip(into) {
                logits.extend_from_slice(&values[sequence.rows.start * width..sequence.rows.end * width]);
            }
        }
        Ok(logits)
    }

    /// The mean over positions of the final norm's output, L2-normalised; zeros where there are no ids.
    ///
    /// # Errors
    /// Where an id is outside the vocabulary, or there is no memory.
    pub fn embed(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        block_on(self.embed_async(ids))
    }

    /// As [`embed`](Self::embed).
    ///
    /// # Errors
    /// As there.
    pub async fn embed_async(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        let width = self.spec.d_model;
        let mut mean = vec![0.0f32; width];
        if ids.is_empty() {
            return Ok(mean);
        }
        let mut session = self.session_async(ids.len()).await?;
        let mut rest = ids;
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(rest.len().min(self.block_rows.get()));
            rest = more;
            let outputs: Vec<usize> = (0..piece.len()).collect();
            let hidden = self.rows_async(&mut session, piece, &outputs, Want::Hidden).await?;
            self.pause().await;
            for row in hidden.chunks_exact(width) {
                mean.iter_mut().zip(row).for_each(|(m, v)| *m += v);
            }
        }
        mean.iter_mut().for_each(|m| *m /= ids.len() as f32);
        let norm = mean.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt() as f32;
        if norm > 0.0 {
            mean.iter_mut().for_each(|m| *m /= norm);
        }
        Ok(mean)
    }
}
