//! The choice of experts: against the golden file, its edges, and its gradient against finite differences.

use selkie_model::reference::ops::*;
use serde_json::Value;

use crate::support::{Golden, Seeded, check_gradient, near};

const PLAIN: RouteRule = RouteRule { score: Score::Softmax, groups: None, renormalise: false, scale: 1.0 };

/// What a case of the golden file is called, in the terms of a rule.
fn rule(case: &str, parameters: &Value) -> RouteRule {
    let score = match case.split('_').next() {
        Some("sigmoid") => Score::Sigmoid,
        Some("topk") => Score::SoftmaxOfChosen,
        _ => Score::Softmax,
    };
    let number = |key: &str| parameters[key].as_u64().map(|n| n as usize);
    let groups = number("groups").zip(number("groups_kept")).map(|(n_groups, n_used)| {
        let two = parameters["group_score"] == "sum of its best two";
        Groups { n_groups, n_used, by: if two { GroupScore::BestTwo } else { GroupScore::Best } }
    });
    let scale = parameters["scaling"].as_f64().map_or(1.0, |s| s as f32);
    RouteRule { score, groups, renormalise: case.contains("renormalised") || score == Score::Sigmoid, scale }
}

#[test]
fn against_the_golden_file() {
    let golden = Golden::open("moe_routing");
    for case in golden.cases() {
        let name = |name: &str| format!("{case}.{name}");
        let parameters = golden.parameters(&case);
        let rule = rule(&case, &parameters);
        let n_used = parameters["k"].as_u64().expect("k") as usize;
        let bias = golden.find(&name("in.bias"));
        let logits = golden.get(&name("in.logits"));
        let (experts, weights) = (golden.ints(&name("out.experts")), golden.get(&name("out.weights")));
        let n_experts = golden.shape(&name("in.logits"))[1];
        for (row, logits) in logits.chunks_exact(n_experts).enumerate() {
            // Choices come in ascending index here, in descending weight there.
            let there = (0..n_used).map(|i| row * n_used + i);
            let mut wanted: Vec<(i32, f64)> = there.map(|at| (experts[at], weights[at])).collect();
            wanted.sort_by_key(|(expert, _)| *expert);
            let got = route(logits, bias.as_deref(), &rule, n_used);
            let indices: Vec<i32> = got.iter().map(|(expert, _)| *expert as i32).collect();
            assert_eq!(indices, wanted.iter().map(|w| w.0).collect::<Vec<_>>(), "{case}, row {row}");
            let (got, wanted): (Vec<f64>, Vec<f64>) = got.iter().zip(&wanted).map(|(g, w)| (g.1, w.1)).unzip();
            near(&got, &wanted, 2e-7, &format!("{case}, row {row}"));
        }
    }
}

#[test]
fn ties_go_to_the_lower_index() {
    let chosen = |rule: &RouteRule, n_used| -> Vec<usize> {
        route(&[1.0, 2.0, 2.0, 2.0, 1.0, 2.0], None, rule, n_used).iter().map(|c| c.0).collect()
    };
    for score in [Score::Softmax, Score::Sigmoid, Score::SoftmaxOfChosen] {
        assert_eq!(chosen(&RouteRule { score, ..PLAIN }, 2), [1, 2]);
    }
    // Of the groups (1, 2), (2, 2) and (1, 2) the second is best by two, the first two by one.
    let groups = |by, n_used| Some(Groups { n_groups: 3, n_used, by });
    assert_eq!(chosen(&RouteRule { groups: groups(GroupScore::BestTwo, 1), ..PLAIN }, 1), [2]);
    assert_eq!(chosen(&RouteRule { groups: groups(GroupScore::Best, 1), ..PLAIN }, 2), [0, 1]);
    assert_eq!(chosen(&RouteRule { groups: groups(GroupScore::Best, 2), ..PLAIN }, 3), [1, 2, 3]);
}

/// A bias moves the choice and not the weights; experts of other groups are never chosen, however low all others are.
#[test]
fn what_chooses_is_not_what_weighs() {
    let scores = [0.0, 1.0, 2.0, 3.0];
    let rule = RouteRule { score: Score::Sigmoid, ..PLAIN };
    let chosen = route(&scores, Some(&[5.0, 0.0, 0.0, -5.0]), &rule, 2);
    assert_eq!(chosen, [(0, sigmoid(0.0)), (2, sigmoid(2.0))]);
    let groups = Some(Groups { n_groups: 2, n_used: 1, by: GroupScore::BestTwo });
    let low = [-7.0, -8.0, -9.0, -9.0];
    let chosen = route(&scores, Some(&low), &RouteRule { groups, ..rule }, 2);
    assert_eq!(chosen, [(0, sigmoid(0.0)), (1, sigmoid(1.0))]);
}

#[test]
fn gradients() {
    let mut seeded = Seeded(30);
    let groups = Some(Groups { n_groups: 2, n_used: 1, by: GroupScore::BestTwo });
    for score in [Score::Softmax, Score::Sigmoid, Score::SoftmaxOfChosen] {
        for renormalise in [false, true] {
            for groups in [None, groups] {
                let rule = RouteRule { score, groups, renormalise, scale: 1.75 };
                let (scores, bias, dweights) = (seeded.values(8), seeded.values(8), seeded.values(3));
                let chosen = route(&scores, Some(&bias), &rule, 3);
                let d = route_backward(&scores, &chosen, &rule, &dweights);
                check_gradient(&format!("scores by {rule:?}"), &scores, &d, |scores| {
                    let moved = route(scores, Some(&bias), &rule, 3);
                    moved.iter().zip(&dweights).map(|(c, d)| c.1 * d).sum()
                });
                let used = d.iter().filter(|&&d| d.abs() > 1e-12).count();
                assert_eq!(used, if score == Score::Softmax && !renormalise { 8 } else { 3 }, "{rule:?}");
            }
        }
    }
}
