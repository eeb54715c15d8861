//! The selective scan of one row.

use selkie_model::{
    WeightId,
    plan::{Product, SelectiveScanOp},
};

use super::Shape;
use crate::{
    Error, Result,
    compile::{Ctx, View, row},
    kernels::{Binds, product},
    lower::{Input, RowNorm},
    table::{Count, Each, Grid, Ref, Row},
    weights::{Matrix, MatrixId},
};

/// Values of the short row that step sizes are made of at most, where the kernel makes them.
const MOST_LOW: usize = 1024;
/// The scratch buffer of step sizes that it cannot make; products use those before it.
const STEPS: usize = 2;

pub(super) fn emit(
    ctx: &mut Ctx<'_, '_>,
    shape: &Shape,
    op: &SelectiveScanOp,
    dt: Option<&(Input, Product)>,
    [b, c]: [&Input; 2],
) -> Result<()> {
    let [x, b_view, c_view, out] = [ctx.view(op.x)?, ctx.view(b.x)?, ctx.view(c.x)?, ctx.view(op.out)?];
    let steps = match dt {
        Some((low, product)) => Steps::of(ctx, low, product, [&b_view, &c_view])?,
        None => None,
    };
    let (dt, dt_offset) = match (dt, &steps) {
        (Some(_), Some(steps)) => (steps.low.of(), steps.low.offset),
        (Some((low, product)), None) => {
            let made = ctx.scratch(STEPS, 4 * shape.channels as u64);
            product::emit_to_scratch(ctx, low, product, made)?;
            (made, 0)
        }
        (None, _) => {
            let dt = ctx.view(op.dt)?;
            (dt.of(), dt.offset)
        }
    };
    let mut binds = shape.binds(ctx, op);
    let mut small = Small::default();
    binds.read("X", x.of());
    let of_steps = match &steps {
        Some(steps) => {
            binds.read("LOW", dt);
            steps.bind(&mut binds, &mut small)
        }
        None => {
            binds.read("DT", dt);
            binds.read("B", b_view.of());
            if c_view.place != b_view.place {
                binds.read("C", c_view.of());
            }
            vec![]
        }
    };
    let norms_at = small.len();
    let weights = [("NORM_OF_B", b.norm), ("NORM_OF_C", c.norm)].map(|(name, norm)| weight_of(&mut binds, name, norm));
    match weights {
        [None, None] => {}
        [Some(_), Some(_)] => {
            binds.set("WEIGHTED", 1);
            small.0.extend(weights.map(|weight| (weight, shape.d_state)));
        }
        _ => {
            let what = "norms of B and C need weights on both, or on neither".into();
            return Err(Error::Op { op: "selective_scan".into(), what });
        }
    }
    if !small.0.is_empty() {
        let small = ctx.vector_of(&small.0, false);
        binds.read("SMALL", Ref::Vector(small));
    }
    binds.write("OUT", out.of());
    let places = [shape.channels, x.offset, dt_offset, b_view.offset, c_view.offset, out.offset];
    let params =
        [&places.map(|place| place as u32)[..], &[eps_of(b.norm), eps_of(c.norm), norms_at], &of_steps].concat();
    let grid = Grid::Line(Count::fixed(shape.channels.div_ceil(shape.channels_each())));
    let made = row("selective scan of a row", "kernels/scan/token.wgsl", binds.defines);
    let (slot, each) = (Some(op.state), Each::Sequence);
    ctx.push(Row { params, bindings: binds.list, grid, slot, each, ..made });
    Ok(())
}

/// Small weights that share a binding, one after another.
#[derive(Default)]
struct Small(Vec<(Option<WeightId>, usize)>);

impl Small {
    /// Where the next goes.
    fn len(&self) -> u32 {
        self.0.iter().map(|part| part.1 as u32).sum()
    }
}

/// Sets the define of a norm where there is one; gives its weight.
fn weight_of(binds: &mut Binds, name: &str, norm: Option<RowNorm>) -> Option<WeightId> {
    if norm.is_some() {
        binds.set(name, 1);
    }
    norm.and_then(|norm| norm.weight)
}

fn eps_of(norm: Option<RowNorm>) -> u32 {
    norm.map_or(0.0, |norm| norm.eps).to_bits()
}

/// The product that the kernel makes step sizes with.
struct Steps {
    /// The short row that it is made of, which B and C lie beside.
    low: View,
    norm: Option<RowNorm>,
    matrix: Matrix,
    id: MatrixId,
    bias: Option<WeightId>,
}

impl Steps {
    /// `None` where the kernel cannot make them, for want of bindings or workgroup memory.
    fn of(ctx: &mut Ctx<'_, '_>, low: &Input, product: &Product, beside: [&View; 2]) -> Result<Option<Self>> {
        let view = ctx.view(low.x)?;
        if view.width > MOST_LOW || beside.iter().any(|other| other.place != view.place) {
            return Ok(None);
        }
        let [id] = product::matrices(ctx, &[product.weight], false)?[..] else { return Ok(None) };
        let matrix = ctx.needed.get(id).clone();
        let fits = matrix.chunks.len() == 1 && !matrix.format.needs_grids();
        Ok(fits.then_some(Self { low: view, norm: low.norm, matrix, id, bias: product.bias }))
    }

    /// Binds the matrix, and gives the kernel's last parameters.
    fn bind(&self, binds: &mut Binds, small: &mut Small) -> Vec<u32> {
        let groups = self.matrix.cols.div_ceil(32);
        binds.matrix(&self.matrix, self.id, 0);
        binds.set("GROUPS", format!("{groups}u"));
        if self.bias.is_some() {
            binds.set("BIAS", 1);
            small.0.push((self.bias, self.matrix.rows));
        }
        let norm_at = small.len();
        let weight = weight_of(binds, "NORM_OF_LOW", self.norm);
        if weight.is_some() {
            binds.set("LOW_WEIGHTED", 1);
            small.0.push((weight, self.matrix.cols));
        }
        let sizes = [self.matrix.cols, groups, self.matrix.row_words].map(|size| size as u32);
        [&[eps_of(self.norm), norm_at][..], &sizes].concat()
    }
}
