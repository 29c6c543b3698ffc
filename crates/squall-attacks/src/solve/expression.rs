//! The expressions of a rule, each parsed once.

use squall_rules::{Operation, Rule};

use crate::regex::Expression;

/// Expressions that must match, with the indices of their options.
#[derive(Default)]
pub(super) struct Expressions(Vec<(u16, Result<Expression, String>)>);

impl Expressions {
    pub(super) fn of_rule(rule: &Rule) -> Expressions {
        let mut all = vec![];
        for step in rule.inspections.iter().flat_map(|inspection| &inspection.steps) {
            if let Operation::Pcre(pcre) = &step.operation
                && !pcre.negated
            {
                all.push((
                    step.option,
                    Expression::of_rule(pcre).map_err(|error| error.to_string()),
                ));
            }
        }
        Expressions(all)
    }

    pub(super) fn of(&self, option: u16) -> Result<&Expression, &str> {
        match self.0.iter().find(|(of, _)| *of == option) {
            Some((_, Ok(expression))) => Ok(expression),
            Some((_, Err(text))) => Err(text),
            None => Err("the rule does not have this expression"),
        }
    }

    /// Number of branches of all expressions.
    pub(super) fn branches(&self) -> u64 {
        self.0
            .iter()
            .filter_map(|(_, expression)| expression.as_ref().ok())
            .map(Expression::branches)
            .max()
            .unwrap_or(1)
    }
}
