//! Matrix products over stored blocks: for a token a workgroup or a part of one goes down a row; for blocks of rows tiles of
//! both meet in workgroup memory.

mod block;
mod corrections;
#[cfg(test)]
mod test;
mod token;

pub(super) use corrections::corrections;
pub(crate) use token::{Made, lanes, parts};

use selkie_model::{
    WeightId,
    plan::{Product, Rows},
};

use crate::{
    Error, Result,
    compile::{Ctx, Regime, View, whole_piece},
    kernels::Binds,
    lower::{Input, Then},
    table::{Bind, Ref},
    weights::{Matrix, MatrixId, MatrixKey, Piece},
};

/// Products that lie together in one matrix, and where their sums go.
pub(crate) struct Together {
    /// The matrix.
    pub matrix: MatrixId,
    /// `[rows of the matrix]` values to add, where any product has some.
    pub bias: Option<Ref>,
    /// Where the sum of its first row goes.
    pub out: View,
}

pub(super) fn emit(ctx: &mut Ctx<'_, '_>, input: &Input, products: &[Product], then: &Then) -> Result<()> {
    let run = |ctx: &mut Ctx<'_, '_>, together: &Together, then: &Epilogue| run(ctx, input, together, then);
    match then {
        Then::Store => {
            for together in store(ctx, products)? {
                run(ctx, &together, &Epilogue::Store)?;
            }
        }
        Then::Add { residual, scale, out } => {
            let (residual, out) = (ctx.view(*residual)?, ctx.view(*out)?);
            for mut together in one(ctx, &products[0])? {
                let at = together.out.offset;
                together.out = View { offset: out.offset + at, ..out };
                let residual = View { offset: residual.offset + at, ..residual };
                run(ctx, &together, &Epilogue::Add { residual, scale: *scale })?;
            }
        }
        Then::Glu { activation, scale, out: out_id } => {
            let out = ctx.view(*out_id)?;
            let function = crate::lower::Function::Activation(*activation).shader().0;
            if let Some(mut together) = in_turns(ctx, products)? {
                together.out = out;
                let rounded = ctx.is_rounded(*out_id);
                run(ctx, &together, &Epilogue::Glu { function, scale: *scale, rounded })?;
            } else {
                // The gate's sums first, to a buffer of their own.
                let bytes = 4 * (ctx.max_rows * out.stride) as u64;
                let gates = ctx.scratch(0, bytes);
                for mut together in one(ctx, &products[0])? {
                    together.out = View { place: out.place, ..together.out };
                    together.out.stride = out.stride;
                    together.out.rows = out.rows;
                    run(ctx, &together, &Epilogue::Scratch(gates))?;
                }
                for mut together in one(ctx, &products[1])? {
                    let offset = together.out.offset;
                    together.out = View { offset: out.offset + offset, ..out };
                    let function = function.clone();
                    run(
                        ctx,
                        &together,
                        &Epilogue::Gated { function, scale: *scale, gates, offset, stride: out.stride },
                    )?;
                }
            }
        }
    }
    Ok(())
}

/// Writes the dispatches of products that lie together.
pub(crate) fn run(ctx: &mut Ctx<'_, '_>, input: &Input, together: &Together, then: &Epilogue) -> Result<()> {
    match ctx.target.regime {
        Regime::Token => token::emit(ctx, input, together, then, None),
        Regime::Block => block::emit(ctx, input, together, then, &(0..usize::MAX)),
    }
}

/// One product with a row, or rows, to a scratch buffer.
pub(super) fn emit_to_scratch(ctx: &mut Ctx<'_, '_>, input: &Input, product: &Product, scratch: Ref) -> Result<()> {
    for together in one(ctx, product)? {
        run(ctx, input, &together, &Epilogue::Scratch(scratch))?;
    }
    Ok(())
}

/// What is done with a sum before it is stored.
pub(crate) enum Epilogue {
    /// Nothing.
    Store,
    /// Nothing, and it goes to a scratch buffer.
    Scratch(Ref),
    /// `function(scale · even row) · odd row`.
    Glu {
        /// Its name in shaders.
        function: String,
        /// Multiplies what it is of.
        scale: f32,
        /// Whether results are stored rounded to 8 bits.
        rounded: bool,
    },
    /// `function(scale · gate) · sum`, gates from a scratch buffer.
    Gated {
        /// Its name in shaders.
        function: String,
        /// Multiplies what it is of.
        scale: f32,
        /// The gates.
        gates: Ref,
        /// The first of them.
        offset: usize,
        /// Values in a row of them.
        stride: usize,
    },
    /// `residual + scale · sum`.
    Add {
        /// Where the residual is.
        residual: View,
        /// Multiplies the sum.
        scale: f32,
    },
}

impl Binds {
    /// Binds a chunk of a matrix under both its names, with the defines of its format.
    pub(crate) fn matrix(&mut self, matrix: &Matrix, id: MatrixId, chunk: usize) {
        self.read("WEIGHTS4", Ref::Matrix(id, chunk));
        self.read("WEIGHTS", Ref::Matrix(id, chunk));
        for (name, value) in matrix.format.defines().iter() {
            self.set(name, value);
        }
        if matrix.format.needs_grids() {
            self.read("GRIDS", Ref::Grids);
        }
    }
}

/// The matrices of weights whose rows follow each other: one where all are of one type, one a run of a type otherwise.
pub(crate) fn matrices(ctx: &mut Ctx<'_, '_>, weights: &[WeightId], in_turns: bool) -> Result<Vec<MatrixId>> {
    let mut made: Vec<(selkie_formats::DType, Vec<Piece>)> = vec![];
    for &id in weights {
        let whole = whole_piece(ctx.needed, id);
        let runs = ctx.needed.runs(id);
        let n = runs.len();
        for (i, (dtype, rows)) in runs.into_iter().enumerate() {
            let padding = if i + 1 == n { whole.padding } else { 0 };
            let piece = Piece { weight: id, first: rows.start, rows: rows.len(), padding };
            match made.last_mut() {
                Some(last) if last.0 == dtype => last.1.push(piece),
                _ => made.push((dtype, vec![piece])),
            }
        }
    }
    // In turns, results come in whole groups of 32.
    let unit = if in_turns { 32 * weights.len() } else { 4 };
    made.into_iter().map(|(dtype, pieces)| ctx.needed.matrix(MatrixKey { pieces, in_turns }, dtype, unit)).collect()
}

/// Products whose sums are stored side by side.
fn store(ctx: &mut Ctx<'_, '_>, products: &[Product]) -> Result<Vec<Together>> {
    let weights: Vec<WeightId> = products.iter().map(|p| p.weight).collect();
    let first = ctx.view(products[0].out)?;
    let biases: Vec<_> = products.iter().map(|p| (p.bias, whole_piece(ctx.needed, p.weight).device_rows())).collect();
    let mut made = vec![];
    let mut offset = first.offset;
    // Each product's own width, to know which biases a matrix of some of them has.
    let mut at = 0;
    for id in matrices(ctx, &weights, false)? {
        let rows = ctx.needed.get(id).rows;
        let bias = bias_part(&biases, at, rows)?.map(|parts| Ref::Vector(ctx.vector_of(&parts, false)));
        made.push(Together { matrix: id, bias, out: View { offset, width: rows, ..first } });
        offset += rows;
        at += rows;
    }
    Ok(made)
}

/// Values to add to a product's rows, padding among them, where it has any.
type Bias = (Option<WeightId>, usize);

/// The biases of matrix rows `at..at + rows`, where there are any.
fn bias_part(biases: &[Bias], at: usize, rows: usize) -> Result<Option<Vec<Bias>>> {
    let mut start = 0;
    let mut parts = vec![];
    for &(bias, len) in biases {
        if start >= at && start + len <= at + rows {
            parts.push((bias, len));
        } else if bias.is_some() && start < at + rows && start + len > at {
            return Err(bias_of_parts());
        }
        start += len;
    }
    let any = parts.iter().any(|part| part.0.is_some());
    Ok(any.then_some(parts))
}

fn bias_of_parts() -> Error {
    Error::Op { op: "linear".into(), what: "a bias on a weight of several types".into() }
}

/// One product, which may be of several types; its sums from offset 0 on.
fn one(ctx: &mut Ctx<'_, '_>, product: &Product) -> Result<Vec<Together>> {
    let width = ctx.plan.buffer(product.out).width;
    let piece = whole_piece(ctx.needed, product.weight);
    let mut made = vec![];
    let mut offset = 0;
    let ids = matrices(ctx, &[product.weight], false)?;
    let alone = ids.len() == 1;
    for id in ids {
        let rows = ctx.needed.get(id).rows;
        let bias = match product.bias {
            Some(bias) if alone => Some(Ref::Vector(ctx.vector_of(&[(Some(bias), piece.device_rows())], false))),
            Some(_) => return Err(bias_of_parts()),
            None => None,
        };
        let rows_kind = Rows::All;
        made.push(Together { matrix: id, bias, out: View { place: 0, offset, stride: 0, width, rows: rows_kind } });
        offset += rows;
    }
    Ok(made)
}

/// Gate and up in turns, where both are of one type.
fn in_turns(ctx: &mut Ctx<'_, '_>, products: &[Product]) -> Result<Option<Together>> {
    let weights: Vec<WeightId> = products.iter().map(|p| p.weight).collect();
    let types: Vec<_> = weights.iter().map(|&id| ctx.needed.runs(id)).collect();
    let first = types[0][0].0;
    if types.iter().any(|runs| runs.len() != 1 || runs[0].0 != first) {
        return Ok(None);
    }
    let matrix = matrices(ctx, &weights, true)?[0];
    let out = View { place: 0, offset: 0, stride: 0, width: 0, rows: Rows::All };
    let rows = whole_piece(ctx.needed, weights[0]).device_rows();
    let parts: Vec<_> = products.iter().map(|p| (p.bias, rows)).collect();
    let any = parts.iter().any(|part| part.0.is_some());
    let bias = any.then(|| Ref::Vector(ctx.vector_of(&parts, true)));
    Ok(Some(Together { matrix, bias, out }))
}

/// What the epilogue binds: the buffer that is written, and what is read. Returns offset and stride of what is read, and the
/// factor.
pub(crate) fn bind_epilogue(binds: &mut Binds, together: &Together, then: &Epilogue) -> ([u32; 2], f32) {
    let out = match then {
        Epilogue::Scratch(scratch) => *scratch,
        _ => together.out.of(),
    };
    binds.write("OUT", out);
    if let Some(bias) = together.bias {
        binds.read("BIAS", bias);
    }
    match then {
        Epilogue::Store | Epilogue::Scratch(_) => ([0, 0], 1.0),
        Epilogue::Glu { function, scale, .. } => {
            binds.set("THEN", "glu");
            binds.set("THEN_FN", function);
            ([0, 0], *scale)
        }
        Epilogue::Gated { function, scale, gates, offset, stride } => {
            binds.set("THEN", "gated");
            binds.set("THEN_FN", function);
            binds.read("OTHER", *gates);
            ([*offset as u32, *stride as u32], *scale)
        }
        Epilogue::Add { residual, scale } => {
            binds.set("THEN", "add");
            if residual.of() == out {
                binds.set("OVER", 1);
            } else {
                debug_assert!(!binds.list.contains(&Bind::read(out)));
                binds.read("OTHER", residual.of());
            }
            ([residual.offset as u32, residual.stride as u32], *scale)
        }
    }
}
