//! Several tokens without a wait between them: each is chosen on the device, and the next one's pass reads it there.

use std::rc::Rc;

use selkie_model::{Choice, Result};
use web_time::Instant;

use super::{Engine, LONGEST, MAX_SEQUENCES, Piece};
use crate::{
    kernels::sample,
    state::{Planes, Slots},
    table::{Run, Sizes},
};

impl Engine {
    /// Feeds `last`, chooses a token, feeds that, and so on; gives the tokens that were chosen, up to the first that ends
    /// the sequence. `None` where the host has to choose.
    pub(crate) async fn generate(
        &self,
        last: u32,
        n: usize,
        choice: &Choice<'_>,
        state: &Slots,
    ) -> Result<Option<Vec<u32>>> {
        if !sample::can(choice) {
            return Ok(None);
        }
        self.settle(state).await?;
        let planes = self.own_planes(state).await?;
        let past = state.inner.borrow().positions;
        let n = n.min(self.tokens_at_once());
        let started = Instant::now();
        let ran = self.tokens(last, n, choice, &planes, past).await;
        let mut chosen = match ran {
            Ok(chosen) => chosen,
            Err(error) => {
                state.inner.borrow_mut().undo(past);
                return Err(error);
            }
        };
        self.token_time.set(Some(started.elapsed() / n.max(1) as u32));
        if let Some(end) = chosen.iter().position(|id| choice.stop.contains(id)) {
            chosen.truncate(end + 1);
        }
        let fed: Vec<u32> = std::iter::once(last).chain(chosen.iter().copied()).take(chosen.len()).collect();
        self.advance(state, &fed, &planes).await?;
        Ok(Some(chosen))
    }

    /// Tokens that a submit may take: one until it is known how long that takes, and no more than there is room for.
    fn tokens_at_once(&self) -> usize {
        let fits = self.token_time.get().map_or(1, |time| LONGEST.as_nanos() / time.as_nanos().max(1));
        (fits as usize).clamp(1, (self.most_rows - 1).min(MAX_SEQUENCES - 1))
    }

    /// Tokens of the submit that begins with token `first`: as many as are on their way already, so that the device is at
    /// work while more are written. All in one submit it would wait for them, a fifth of a small model's time on a large
    /// card. Where dispatches are timed, there is room for those of one.
    fn tokens_a_submit(&self, first: usize) -> usize {
        if self.measuring.get() { 1 } else { first.max(1) }
    }

    /// `n` tokens in a few submits, of 1, 1, 2, 4, and one wait. Steps, angles and choices are known beforehand; ids, and whether the sequence
    /// has ended, come from the kernel that chooses.
    async fn tokens(
        &self,
        last: u32,
        n: usize,
        choice: &Choice<'_>,
        planes: &Rc<Planes>,
        past: usize,
    ) -> Result<Vec<u32>> {
        let pieces: Vec<Piece> = (0..n).map(|input| Piece { first: 0, own: 1, past: past + input, input }).collect();
        self.write_inputs(&[last], &pieces, &[0])?;
        // A token's number is that of the positions which the state holds when it is chosen.
        self.sampler.write(&self.gpu, choice, past + 1, n);
        let gpu = &self.gpu;
        let (table, limit) = (&self.token.table, gpu.limits().workgroups);
        let states = [planes.groups.as_slice()];
        let bytes = 4 * n as u64;
        let mut first = 0;
        while first < n {
            let end = n.min(first + self.tokens_a_submit(first));
            let mut timers = self.timers().await?;
            let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            for token in first..end {
                let sizes = [Sizes { rows: 1, outputs: 1, own: 1, past: (past + token) as u32 }];
                let run = Run {
                    rows: 0..table.rows().len(),
                    limit,
                    sequences: &sizes,
                    first_step: token,
                    step: &self.step_group,
                    states: &states,
                };
                let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
                table.encode(&mut pass, &run, timers.as_mut().map(|t| &mut t.0));
                self.sampler.encode(&mut pass, choice, token, timers.as_mut().map(|t| &mut t.0));
            }
            if end == n {
                let (ids, to) = (&self.inputs, &self.readback);
                encoder.copy_buffer_to_buffer(ids.buffer.raw(), ids.ids + 4, to.raw(), 0, bytes);
            }
            if let Some((timers, times)) = &timers {
                timers.resolve(&mut encoder, &times.resolved, &times.readback);
            }
            gpu.queue().submit([encoder.finish()]);
            if let Some((timers, times)) = &timers {
                self.note(timers, times).await?;
            }
            first = end;
        }
        gpu.check()?;
        Ok(gpu.read(&self.readback, 0..bytes, bytemuck::pod_collect_to_vec).await?)
    }
}
