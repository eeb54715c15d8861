//! Mixtures of experts under GGUF's names or transformers'.

use super::decoder::Reader;
use crate::{
    Error, Result,
    spec::{Activation, FeedForward, Gating, Mixture, Routing},
};

impl Reader<'_> {
    /// The mixture of layer `layer`. How many experts there are and how wide they are is read off the tensors.
    pub fn mixture(&mut self, layer: usize, activation: Activation, routing: Routing) -> Result<FeedForward> {
        let d_model = self.sizes.d_model;
        let at = |name: &str| format!("blk.{layer}.{name}");
        let router = at("ffn_gate_inp.weight");
        let info = self.tensors.require(&router)?;
        // Older writers swap the sizes of a matrix.
        let n_experts = match info.shape[..] {
            [n, width] | [width, n] if width == d_model => n,
            _ => {
                let (tensor, found) = (info.name.clone(), info.shape.clone());
                return Err(Error::Shape { tensor, found, wanted: vec![0, d_model] });
            }
        };
        let n_used = self.settings.count("expert_used_count", "num_experts_per_tok")?.unwrap_or(2);
        if n_used == 0 || n_used > n_experts {
            let key = self.settings.name("expert_used_count", "num_experts_per_tok");
            return Err(Error::setting(key, format!("{n_used} of {n_experts} experts")));
        }
        let first = match self.tensors.find(&at("ffn_gate_exps.weight")) {
            Some(stacked) => stacked,
            None => self.tensors.require(&at("ffn_gate.0.weight"))?,
        };
        let values: usize = first.shape.iter().product();
        let per = if first.shape.len() == 3 { d_model * n_experts } else { d_model };
        let d_ff = values / per.max(1);
        let router = self.tensors.weight(&router, &[n_experts, d_model])?;
        let mut stack = |name: &str, out: usize, input: usize| {
            let each = |expert: usize| at(&format!("{name}.{expert}.weight"));
            self.tensors.stack(&at(&format!("{name}_exps.weight")), [n_experts, out, input], each)
        };
        Ok(FeedForward::Mixture(Mixture {
            router,
            router_bias: None,
            gate: Some(stack("ffn_gate", d_ff, d_model)?),
            up: stack("ffn_up", d_ff, d_model)?,
            down: stack("ffn_down", d_model, d_ff)?,
            biases: None,
            gating: Gating::Plain(activation),
            n_experts,
            n_used,
            d_ff,
            routing,
        }))
    }
}
