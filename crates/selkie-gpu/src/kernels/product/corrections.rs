//! Products of low rank that correct the sums of others, each with an input of its own.

use super::{Epilogue, Together, block, emit, matrices, token};
use crate::{
    Result,
    compile::{Ctx, Regime, View, whole_piece},
    lower::{Correction, Input, Then},
};
use selkie_model::plan::Product;

/// The dispatches of up to four corrections: one for a token where everything lies together and all matrices are of one type.
pub(crate) fn corrections(ctx: &mut Ctx<'_, '_>, list: &[Correction]) -> Result<()> {
    let Some(together) = together(ctx, list)? else {
        for c in list {
            let product = Product { weight: c.weight, bias: None, out: c.out };
            let then = Then::Add { residual: c.residual, scale: c.scale, out: c.out };
            emit(ctx, &Input::plain(c.x), &[product], &then)?;
        }
        return Ok(());
    };
    let residual = ctx.view(list[0].residual)?;
    let then = Epilogue::Add { residual, scale: list[0].scale };
    let views: Vec<View> = list.iter().map(|c| ctx.view(c.x)).collect::<Result<_>>()?;
    let mut starts = vec![];
    let mut rows = 0;
    for c in list {
        starts.push(rows);
        rows += whole_piece(ctx.needed, c.weight).device_rows();
    }
    if ctx.target.regime == Regime::Block {
        starts.push(rows);
        for (c, part) in list.iter().zip(starts.windows(2)) {
            block::emit(ctx, &Input::plain(c.x), &together, &then, &(part[0]..part[1]))?;
        }
        return Ok(());
    }
    let Some((first, c)) = views.iter().zip(list).min_by_key(|(view, _)| view.offset) else { return Ok(()) };
    let end = views.iter().map(|view| view.offset + view.width).max().unwrap_or(0);
    // What is not there starts behind all rows.
    let mut own = token::Own { cols: end - first.offset, starts: [u32::MAX as usize; 4], offsets: [0; 4] };
    for (i, (view, start)) in views.iter().zip(starts).enumerate() {
        (own.starts[i], own.offsets[i]) = (start, view.offset - first.offset);
    }
    token::emit(ctx, &Input::plain(c.x), &together, &then, Some(&own))
}

/// The corrections' matrices as one, where inputs lie in a row, and what is corrected and what comes of it do as the matrix's rows.
fn together(ctx: &mut Ctx<'_, '_>, list: &[Correction]) -> Result<Option<Together>> {
    let weights: Vec<_> = list.iter().map(|c| c.weight).collect();
    let dtype = ctx.needed.runs(weights[0])[0].0;
    let cols = ctx.plan.buffer(list[0].x).width;
    // Blocks' inputs are in whole groups.
    let unit = if dtype.is_quantised() { 32 } else { 4 };
    let (mut residual, mut out) = (ctx.view(list[0].residual)?, ctx.view(list[0].out)?);
    let (at, first) = (ctx.view(list[0].x)?, out);
    for c in list {
        let (x, own_residual, own_out) = (ctx.view(c.x)?, ctx.view(c.residual)?, ctx.view(c.out)?);
        let beside = |view: View, other: View| view.place == other.place && view.offset == other.offset;
        let fits = x.place == at.place && x.width == cols && x.offset.abs_diff(at.offset).is_multiple_of(unit);
        let same = ctx.needed.runs(c.weight).iter().all(|run| run.0 == dtype);
        if !fits || !same || !beside(own_residual, residual) || !beside(own_out, out) {
            return Ok(None);
        }
        let rows = whole_piece(ctx.needed, c.weight).device_rows();
        residual.offset += rows;
        out.offset += rows;
    }
    let matrix = matrices(ctx, &weights, false)?[0];
    Ok(Some(Together { matrix, bias: None, out: first }))
}
