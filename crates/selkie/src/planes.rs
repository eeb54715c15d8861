//! Recurrent states, for people to look at.

use selkie_model::plan::{Slot, plan};

use crate::{Model, Result, Session, block_on};

/// One array of a recurrent state.
#[derive(Clone, Debug, PartialEq)]
pub struct StatePlane {
    /// The layer that it belongs to.
    pub layer: usize,
    /// What the layer calls it: `state`, `window`.
    pub name: &'static str,
    /// Sizes, slowest axis first.
    pub shape: Vec<usize>,
    /// Its values, row after row.
    pub values: Vec<f32>,
}

impl Model {
    /// The arrays of the session's recurrent states, in order of layers; attention's caches are none of them.
    ///
    /// # Errors
    /// Where the device cannot be read.
    pub fn planes(&self, session: &Session) -> Result<Vec<StatePlane>> {
        block_on(self.planes_async(session))
    }

    /// As [`planes`](Self::planes).
    ///
    /// # Errors
    /// As there.
    pub async fn planes_async(&self, session: &Session) -> Result<Vec<StatePlane>> {
        let plan = plan(&self.spec);
        let snapshot = session.state.snapshot().await?;
        let mut saved = snapshot.planes.into_iter();
        let mut planes = vec![];
        for (slot, of) in plan.slots.iter().enumerate() {
            let op = plan.ops.iter().position(|op| op.slot().is_some_and(|id| id.0 as usize == slot));
            let layer = op.and_then(|op| plan.layer_of[op]).unwrap_or(0);
            for ((name, shape), tensor) in of.planes(snapshot.positions).into_iter().zip(&mut saved) {
                if !matches!(of, Slot::KvCache { .. }) {
                    let values = tensor.to_f32().map_err(|e| selkie_model::Error::Snapshot(e.to_string()))?;
                    planes.push(StatePlane { layer, name, shape, values });
                }
            }
        }
        Ok(planes)
    }
}
