//! The gated delta rule against the golden file.

use selkie_model::reference::ops::*;

use crate::support::{Gathered, Golden, inverse_softplus, near};

const BOUND: f64 = 3e-7;

#[test]
fn values_and_gradients() {
    let golden = Golden::open("gated_delta_rule");
    for case in golden.cases() {
        let name = |name: &str| format!("{case}.{name}");
        let [batch, length, n_heads, k_dim]: [usize; 4] = golden.shape(&name("in.key")).try_into().expect("four axes");
        let v_dim = golden.shape(&name("in.value"))[3];
        let shape = DeltaShape { n_k_heads: n_heads, n_v_heads: n_heads, k_dim, v_dim };
        // The file has β and g; what gives those here is found by going back.
        let (a_weight, dt_bias) = (vec![-1.0; n_heads], vec![0.0; n_heads]);
        let mut gathered = Gathered::default();
        for entry in 0..batch {
            let [q, k, v, g, beta] =
                ["query", "key", "value", "g", "beta"].map(|what| golden.entry(&name(&format!("in.{what}")), entry));
            let qk = join_heads(&q, &k, n_heads * k_dim, n_heads * k_dim);
            let qkv = join_heads(&qk, &v, 2 * n_heads * k_dim, n_heads * v_dim);
            let a: Vec<f64> = g.iter().map(|g| inverse_softplus(-g)).collect();
            let b: Vec<f64> = beta.iter().map(|beta| (beta / (1.0 - beta)).ln()).collect();
            let mut before = vec![0.0; n_heads * k_dim * v_dim];
            if golden.has(&name("in.initial_state")) {
                before = golden.entry(&name("in.initial_state"), entry);
            }
            for chunk in [1, 3, 16, 64] {
                let mut state = before.clone();
                let y = delta_rule_chunked(&qkv, &b, &a, &a_weight, &dt_bias, &shape, &mut state, chunk);
                near(&y, &golden.entry(&name("out.y"), entry), BOUND, &name("y of chunks"));
                near(&state, &golden.entry(&name("out.last_state"), entry), BOUND, &name("state of chunks"));
            }
            let mut state = before.clone();
            let y = delta_rule(&qkv, &b, &a, &a_weight, &dt_bias, &shape, &mut state);
            assert_eq!(y.len(), length * n_heads * v_dim);
            near(&y, &golden.entry(&name("out.y"), entry), BOUND, &case);
            near(&state, &golden.entry(&name("out.last_state"), entry), BOUND, &name("state"));

            let [dy, dstate] = ["grad_out.y", "grad_out.last_state"].map(|what| golden.entry(&name(what), entry));
            let d = delta_rule_backward(&qkv, &b, &a, &a_weight, &dt_bias, &shape, &before, &dy, &dstate);
            let (dqk, dv) = join_heads_backward(2 * n_heads * k_dim, n_heads * v_dim, &d.qkv);
            let (dq, dk) = join_heads_backward(n_heads * k_dim, n_heads * k_dim, &dqk);
            let dg: Vec<f64> = d.a.iter().zip(&a).map(|(d, &a)| -d / softplus_derivative(a)).collect();
            let dbeta: Vec<f64> = d.b.iter().zip(&b).map(|(d, &b)| d / sigmoid_derivative(b)).collect();
            let all = [("query", &dq), ("key", &dk), ("value", &dv), ("g", &dg), ("beta", &dbeta)];
            all.into_iter().for_each(|(what, values)| gathered.push(what, values));
            gathered.push("initial_state", &d.state);
        }
        gathered.check(&golden, &case, BOUND);
    }
}
