//! Matrix products: several weights that share their input, in one go over the pool.

use std::{marker::PhantomData, ops::Range};

use super::{
    Shared, Sink,
    float::Float,
    formats::{has_integer_path, with_format},
    gemm, gemv,
    q8::Activations,
    scratch::with_scratch,
    vector::{Activation, gate_rows},
};
use crate::{
    Matrix, Pool,
    error::{Result, expect},
    matrix::Part,
};

/// One product `x W^T` and where it goes.
#[derive(Debug)]
pub struct Product<'a> {
    /// The weight, `[outputs, inputs]`.
    pub weight: &'a Matrix,
    /// Added to each row of the result, `[outputs]`.
    pub bias: Option<&'a [f32]>,
    /// The result, `[rows, outputs]`.
    pub out: &'a mut [f32],
    /// Whether the result is added to what `out` holds (a residual), rather than stored.
    pub add: bool,
}

impl<'a> Product<'a> {
    /// A product without bias, stored.
    pub fn new(weight: &'a Matrix, out: &'a mut [f32]) -> Self {
        Self { weight, bias: None, out, add: false }
    }

    /// With a bias, `[outputs]`.
    pub fn with_bias(self, bias: &'a [f32]) -> Self {
        Self { bias: Some(bias), ..self }
    }

    /// Added to what `out` holds.
    pub fn added(self) -> Self {
        Self { add: true, ..self }
    }
}

/// Bytes of weights in a task of a small product: a few microseconds of reading.
const TASK_BYTES: usize = 24 << 10;

/// Computes all `products` with one input, in one parallel region.
///
/// # Errors
/// Where sizes do not fit each other.
pub fn matmul(pool: &Pool, input: &Activations, products: &mut [Product]) -> Result<()> {
    for product in products.iter() {
        check(input, product.weight, product.bias)?;
        expect("result", "values", input.rows * product.weight.outputs(), product.out.len())?;
    }
    if input.rows == 0 {
        return Ok(());
    }
    let bytes = products.iter().map(|product| product.weight.bytes()).sum();
    let sinks = |product: &mut Product| Sink {
        out: Shared(product.out.as_mut_ptr()),
        stride: product.weight.outputs(),
        bias: product.bias.map(|bias| Shared(bias.as_ptr().cast_mut())),
        add: product.add,
    };
    // Tasks are numbered through all parts of all products.
    let mut pieces = Vec::with_capacity(products.len());
    let mut tasks = 0;
    for product in products {
        let sink = sinks(product);
        let mut column = 0;
        for part in product.weight.parts() {
            let chunk = chunk(pool, input, part, bytes);
            pieces.push((tasks, part, chunk, sink, column));
            tasks += part.rows.div_ceil(chunk);
            column += part.rows;
        }
    }
    pool.run(tasks, |task| {
        let piece = pieces.partition_point(|piece| piece.0 <= task) - 1;
        let (first, part, chunk, sink, column) = pieces[piece];
        let start = (task - first) * chunk;
        multiply(pool, input, part, start..(start + chunk).min(part.rows), sink, column + start);
    });
    Ok(())
}

/// Computes `gate(x G^T) * (x U^T)`, the hidden layer of a gated feed-forward part, in one parallel region;
/// `gate` and `up` are `[outputs, inputs]`, `out` is `[rows, outputs]`.
///
/// # Errors
/// Where sizes do not fit each other.
pub fn matmul_gated(
    pool: &Pool,
    input: &Activations,
    kind: Activation,
    gate: &Matrix,
    up: &Matrix,
    out: &mut [f32],
) -> Result<()> {
    check(input, gate, None)?;
    check(input, up, None)?;
    expect("up", "rows", gate.outputs(), up.outputs())?;
    expect("result", "values", input.rows * gate.outputs(), out.len())?;
    let ([gate_part], [up_part]) = (gate.parts(), up.parts()) else {
        // Matrices in several parts are rare: two steps then.
        let mut ups = vec![0.0; out.len()];
        matmul(pool, input, &mut [Product::new(gate, out), Product::new(up, &mut ups)])?;
        super::vector::gate(pool, kind, out, &ups)?;
        return Ok(());
    };
    if input.rows == 0 {
        return Ok(());
    }
    // Panel by panel where rows are many, so that both halves are in the cache when they are joined.
    let bytes = if input.rows > gemv::MOST_ROWS { 0 } else { gate.bytes() };
    let chunk = chunk(pool, input, gate_part, bytes);
    let (rows, columns, shared) = (input.rows, gate.outputs(), Shared(out.as_mut_ptr()));
    pool.run(columns.div_ceil(chunk), |task| {
        let range = task * chunk..((task + 1) * chunk).min(columns);
        let shared = &shared;
        with_scratch(2 * rows * range.len(), |scratch| {
            let (gates, ups) = scratch.split_at_mut(rows * range.len());
            for (part, values) in [(gate_part, &mut *gates), (up_part, &mut *ups)] {
                let sink = Sink { out: Shared(values.as_mut_ptr()), stride: range.len(), bias: None, add: false };
                multiply(pool, input, part, range.clone(), sink, 0);
            }
            let sink = Sink { out: *shared, stride: columns, bias: None, add: false };
            gate_rows(pool.isa(), kind, gates, ups, range.len(), sink, range.start);
        });
    });
    Ok(())
}

fn check(input: &Activations, weight: &Matrix, bias: Option<&[f32]>) -> Result<()> {
    expect("activations", "columns", weight.inputs(), input.columns)?;
    expect("bias", "values", weight.outputs(), bias.map_or(weight.outputs(), <[f32]>::len))
}

/// Whether the product with a part goes through integers.
fn in_integers(input: &Activations, part: &Part) -> bool {
    input.q8.is_some() && has_integer_path(part.dtype)
}

/// Rows of a part in a task; `bytes` is the size of all weights of the operation.
fn chunk(pool: &Pool, input: &Activations, part: &Part, bytes: usize) -> usize {
    if input.rows > gemv::MOST_ROWS {
        // Whole panels: a panel of any kind divides the grain.
        let grain = gemm::grain(pool.isa());
        let rows = bytes / part.row_bytes.max(1) / (4 * pool.threads());
        return (rows / grain).max(1) * grain;
    }
    let bytes = (bytes / (4 * pool.threads())).max(TASK_BYTES);
    bytes.div_ceil(part.row_bytes.max(1)).next_multiple_of(8)
}

/// Rows `rows` of a part times the input, on this thread.
fn multiply(pool: &Pool, input: &Activations, part: &Part, rows: Range<usize>, sink: Sink, column: usize) {
    let (isa, few) = (pool.isa(), input.rows <= gemv::MOST_ROWS);
    match input.q8 {
        Some(activations) if in_integers(input, part) => {
            if few {
                with_format!(
                    part.dtype,
                    F => isa.run(gemv::Gemv::<F> { part, weights: rows, activations, sink, column, format: PhantomData }),
                    else ()
                );
            } else {
                gemm::gemm(isa, part, rows, activations, sink, column);
            }
        }
        _ => {
            let float = Float { part, weights: rows, x: input.x, columns: input.columns, sink, column };
            if few { float.by_dots(isa) } else { float.by_panels(isa) }
        }
    }
}
