//! What `input.wgsl` is given: the bindings, defines and constants of an [`Input`].

use selkie_model::plan::BufferId;

use crate::{
    Result,
    compile::{Ctx, View},
    kernels::{Binds, rows},
    lower::{Function, Gate, Input},
    table::Ref,
};

/// The constants of an input, in the order in which shaders' parameters have them.
pub(crate) struct Constants {
    /// Values in a row.
    pub width: usize,
    /// Values that are normed together, or the width.
    pub group: usize,
    /// Where `x` is.
    pub x: View,
    /// Offset and stride of the first gate.
    pub before: [u32; 2],
    /// Offset and stride of the second.
    pub after: [u32; 2],
    /// Of the norm.
    pub eps: f32,
    /// Multiplies the result.
    pub scale: f32,
    /// The first gate's constant, or factor.
    pub before_c: f32,
    /// The second's.
    pub after_c: f32,
}

/// Binds what `input` reads.
pub(crate) fn bind(ctx: &mut Ctx<'_, '_>, binds: &mut Binds, input: &Input) -> Result<Constants> {
    let x = ctx.view(input.x)?;
    binds.read("X", x.of());
    let mut width = x.width;
    if let Some(joined) = input.joined {
        let joined = ctx.view(joined)?;
        binds.read("JOINED", joined.of());
        let sizes = [("AT", width), ("OFFSET", joined.offset), ("STRIDE", joined.stride)];
        sizes.iter().for_each(|(name, size)| binds.set(&format!("JOINED_{name}"), format!("{size}u")));
        width += joined.width;
    }
    let (before, before_c) = gate(ctx, binds, "BEFORE", input.before)?;
    let (after, after_c) = gate(ctx, binds, "AFTER", input.after)?;
    let (mut group, mut eps) = (width, 0.0);
    if let Some(norm) = input.norm {
        (group, eps) = (norm.group, norm.eps);
        binds.set("NORM", 1);
        if let Some(weight) = norm.weight {
            let len: usize = ctx.needed.shape(weight).iter().product();
            if len == width {
                binds.set("WHOLE_WEIGHT", 1);
            }
            let weight = ctx.vector(weight);
            binds.read("NORM_WEIGHT", weight);
            binds.set("NORM_WEIGHT", 1);
        }
    }
    Ok(Constants { width, group, x, before, after, eps, scale: input.scale, before_c, after_c })
}

fn gate(ctx: &Ctx<'_, '_>, binds: &mut Binds, name: &str, gate: Option<Gate>) -> Result<([u32; 2], f32)> {
    let (word, by, function, scale) = match gate {
        None => return Ok(([0, 0], 0.0)),
        Some(Gate::Of(function)) => ("of", None, function, None),
        Some(Gate::By(id, function, scale)) => ("by", Some(id), function, Some(scale)),
        Some(Gate::RowBy(id, function)) => ("row_by", Some(id), function, None),
    };
    binds.set(name, word);
    let (shader_name, constant) = function.shader();
    // Functions of gates have no constants: what gates are multiplied by has that place.
    let constant = scale.unwrap_or(constant);
    binds.set(&format!("{name}_FN"), shader_name);
    let Some(id) = by else { return Ok(([0, 0], constant)) };
    let view = ctx.view(id)?;
    binds.read(name, view.of());
    Ok(([view.offset as u32, view.stride as u32], constant))
}

impl Function {
    /// Its name in `functions.wgsl`, and its constant.
    pub(crate) fn shader(self) -> (String, f32) {
        match self {
            Function::Activation(f) => (format!("f_{}", f.name()), 0.0),
            Function::Clamp(limit) => ("f_clamp".into(), limit),
            Function::SoftCap(cap) => ("f_soft_cap".into(), cap),
        }
    }
}

/// Where a row that is made goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Which buffer.
    pub of: Ref,
    /// Its first value.
    pub offset: usize,
    /// From a row to the next.
    pub stride: usize,
}

impl From<View> for Target {
    fn from(view: View) -> Self {
        Self { of: view.of(), offset: view.offset, stride: view.stride }
    }
}

/// Offset and stride of each of `ids` in one buffer: the place where they all are, or copies of them in scratch buffer
/// `scratch` where they are apart.
pub(crate) fn together(ctx: &mut Ctx<'_, '_>, ids: &[BufferId], scratch: usize) -> Result<(Ref, Vec<[usize; 2]>)> {
    let views: Vec<View> = ids.iter().map(|&id| ctx.view(id)).collect::<Result<_>>()?;
    if views.iter().all(|view| view.place == views[0].place) {
        return Ok((views[0].of(), views.iter().map(|view| [view.offset, view.stride]).collect()));
    }
    let width: usize = views.iter().map(|view| view.width.next_multiple_of(4)).sum();
    let of = ctx.scratch(scratch, 4 * (ctx.max_rows * width) as u64);
    let mut at = vec![];
    let mut offset = 0;
    for (&id, view) in ids.iter().zip(&views) {
        rows::emit_to(ctx, &Input::plain(id), None, Target { of, offset, stride: width }, view.rows)?;
        at.push([offset, width]);
        offset += view.width.next_multiple_of(4);
    }
    Ok((of, at))
}
