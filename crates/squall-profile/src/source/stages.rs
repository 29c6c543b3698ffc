//! Reads the stages of a load or of a rate.

use std::fmt::Display;

use squall_units::Nanos;

use super::read::{Place, Placed, Reader};
use crate::{Stage, stage::LONGEST};

/// One stage.
pub(super) struct Row<'a, T> {
    pub place: &'a Place,
    pub lasts: Option<&'a Placed<Nanos>>,
    pub to: Option<(T, &'a Place)>,
}

/// Properties of a kind of level.
pub(super) struct Levels<T> {
    /// The key that sets the highest level, and its value.
    pub full: Option<(&'static str, T)>,
    pub zero: T,
    /// An example of a level, for messages.
    pub example: &'static str,
    pub number: fn(T) -> f64,
}

impl<T: Copy + Display> Levels<T> {
    /// Reads the stages in `rows`, which are entries of the list at `place`, and reports errors.
    pub fn read<'a>(
        &self,
        place: &Place,
        rows: impl Iterator<Item = Row<'a, T>>,
        cx: &mut Reader<'_>,
    ) -> Vec<Stage<T>>
    where
        T: 'a,
    {
        let (number, example) = (self.number, self.example);
        let (mut stages, mut level, mut passes) = (Vec::new(), self.zero, false);
        for row in rows {
            let lasts = row.lasts.map_or(Nanos::ZERO, |lasts| lasts.value);
            let to = row.to.map_or(level, |(to, _)| to);
            if row.lasts.is_none() && row.to.is_none() {
                let hint = format!(r#"try {{ duration = "10 s", to = {example} }}"#);
                cx.report(row.place, "has neither duration nor to", &[hint]);
            }
            if let (Some((_, at)), Some((key, full))) = (row.to, self.full)
                && number(to) > number(full)
            {
                let text = format!("= {to} is more than {key} = {full}, the highest level");
                cx.report(at, &text, &[format!("try {key} = {to}")]);
            }
            if let Some(lasts_given) = row.lasts
                && number(to) != number(level)
                && lasts > LONGEST
            {
                let text = format!("= {lasts} is too long for a level that rises or falls");
                let hint = "expected at most 24 h: try several stages";
                cx.report(&lasts_given.place, &text, &[hint.into()]);
            }
            passes |= lasts > Nanos::ZERO && (number(level) > 0.0 || number(to) > 0.0);
            level = to;
            stages.push(Stage { lasts, to });
        }
        if !passes {
            let hint = format!(
                r#"try [{{ duration = "10 s", to = {example} }}, {{ duration = "1 min" }}]"#
            );
            cx.report(place, "never reaches a level above 0", &[hint]);
        }
        stages
    }
}
