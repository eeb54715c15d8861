//! Where virtual buffers lie: two of them share a place where one is read for the last time before the other is written.

use super::{Buffer, BufferId, Op, Plan, Rows};

/// The places of a plan's buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    of_buffer: Vec<Option<usize>>,
    /// Each place: how many rows, and the width of the widest buffer in it.
    pub places: Vec<(Rows, usize)>,
}

impl Places {
    /// The place of a buffer; `None` for one that no op writes, such as the inner products of a fused op.
    pub fn of(&self, buffer: BufferId) -> Option<usize> {
        self.of_buffer[buffer.0 as usize]
    }
}

/// The input that `op` may write its output over, value for value.
pub fn in_place(op: &Op) -> Option<BufferId> {
    match op {
        Op::Rope { x, .. }
        | Op::Scale { x, .. }
        | Op::Clamp { x, .. }
        | Op::SoftCap { x, .. }
        | Op::Activate { x, .. }
        | Op::ScaleRows { x, .. }
        | Op::Add { x, .. } => Some(*x),
        Op::Glu { gate, .. } => Some(*gate),
        Op::LinearAdd { residual, .. } => Some(*residual),
        _ => None,
    }
}

/// Gives every buffer of `plan` a place, first fit in the order of the ops.
pub fn places(plan: &Plan) -> Places {
    let mut last_read = vec![0; plan.buffers.len()];
    for (at, op) in plan.ops.iter().enumerate() {
        op.inputs().iter().for_each(|b| last_read[b.0 as usize] = at);
    }
    for kept in [plan.hidden, plan.logits] {
        last_read[kept.0 as usize] = plan.ops.len();
    }
    let mut of_buffer: Vec<Option<usize>> = vec![None; plan.buffers.len()];
    let mut places: Vec<(Rows, usize)> = vec![];
    let mut free: Vec<usize> = vec![];
    for (at, op) in plan.ops.iter().enumerate() {
        let dies = |b: BufferId| last_read[b.0 as usize] == at;
        let over = in_place(op).filter(|b| dies(*b));
        for out in op.outputs() {
            let &Buffer { rows, width, .. } = plan.buffer(out);
            let same = over.filter(|b| *plan.buffer(*b) == Buffer { name: plan.buffer(*b).name, rows, width });
            let place = same.and_then(|b| of_buffer[b.0 as usize]).unwrap_or_else(|| {
                let fits = free.iter().position(|&p| places[p].0 == rows);
                match fits {
                    Some(found) => free.swap_remove(found),
                    None => {
                        places.push((rows, 0));
                        places.len() - 1
                    }
                }
            });
            places[place].1 = places[place].1.max(width);
            of_buffer[out.0 as usize] = Some(place);
        }
        let taken: Vec<usize> = op.outputs().iter().filter_map(|b| of_buffer[b.0 as usize]).collect();
        let mut dead = op.inputs();
        dead.sort_unstable();
        dead.dedup();
        for input in dead {
            if let Some(place) = of_buffer[input.0 as usize].filter(|p| dies(input) && !taken.contains(p)) {
                free.push(place);
            }
        }
    }
    Places { of_buffer, places }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{WeightId, plan::Product};

    fn linear(x: u32, out: u32) -> Op {
        Op::Linear { x: BufferId(x), product: Product { weight: WeightId(0), bias: None, out: BufferId(out) } }
    }

    fn plan(ops: Vec<Op>, buffers: usize) -> Plan {
        Plan {
            layer_of: vec![None; ops.len()],
            layers: vec![],
            buffers: vec![Buffer { name: "b", rows: Rows::All, width: 4 }; buffers],
            slots: vec![],
            hidden: BufferId(buffers as u32 - 1),
            logits: BufferId(buffers as u32 - 1),
            ops,
        }
    }

    /// No op writes over what is still to be read, itself included, unless it works in place.
    #[test]
    fn nothing_alive_is_written_over() {
        let add = Op::Add { x: BufferId(0), y: BufferId(2), scale: 1.0, out: BufferId(3) };
        let embed = Op::Embed { table: WeightId(0), scale: 1.0, out: BufferId(0) };
        let plan = plan(vec![embed, linear(0, 1), linear(1, 2), add, linear(3, 4)], 5);
        let places = places(&plan);
        let of = |b| places.of(BufferId(b)).unwrap();
        assert_eq!(of(3), of(0), "the sum goes over the stream");
        assert!(of(1) != of(0) && of(2) != of(1) && of(2) != of(0) && of(4) != of(3));
        assert_eq!(places.places.len(), 3, "0, 1 and 2 are alive or read and written at once");
    }
}
