#![no_main]
//! Makes attacks from rules. Solving each rule terminates within its limits, either with a reason
//! or with a solution, which is written as frames, explained, and changed to a near miss. Input:
//! text of rules.

use libfuzzer_sys::fuzz_target;
use squall_attacks::{
    Solver, near_miss,
    solve::{Hosts, Settings, endpoints_of, explain},
    wire,
};
use squall_rules::{RuleSet, Variables};

fuzz_target!(|data: &[u8]| {
    let rules = RuleSet::parse(&String::from_utf8_lossy(data), &Variables::standard());
    // A tenth of the usual limits, to try more inputs per second.
    let settings = Settings { steps: 40_000, attempts: 8, ..Settings::default() };
    let solver = Solver::new(&rules, settings);
    for (index, rule) in rules.rules.iter().enumerate().take(4) {
        let solution = match solver.solve(index, 0) {
            Ok(solution) => solution,
            Err(unsolved) => {
                assert!(!unsolved.text.is_empty());
                continue;
            }
        };
        assert_eq!(solver.matches(&solution, &solution.exchanges), Ok(true));
        assert!(!explain(&rules, &solution).to_string().is_empty());
        if let Some(twin) = near_miss(&solution, &rules, &solver) {
            assert_eq!(solver.matches(&solution, &twin.exchanges), Ok(false));
        }
        let Some(ends) = endpoints_of(&[rule], 7, &Hosts::default()) else { continue };
        for exchange in &solution.exchanges {
            let _ = wire::frames(exchange, &ends, &wire::Settings::default());
        }
    }
});
