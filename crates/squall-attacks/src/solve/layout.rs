//! Lays out the octets of one buffer: places a rule's steps one after the other, with backtracking.
//!
//! A buffer is a sequence of cells, each a set of possible octets. A `content` narrows cells to its
//! octets, an expression to its character classes, a number to its digits. If a set becomes empty,
//! the search tries another position. Cells without constraints are filled at the end.

use std::collections::HashSet;

use squall_rules::{
    ByteExtract, ByteJump, ByteMath, ByteTest, Comparison, Content, JumpFrom, Number, Numbers,
    Operation, Pcre, Step, Variable,
};

use super::expression::Expressions;
use super::formed::{Form, Spot};
use super::number;
use super::rng::Rng;
use crate::regex::{ByteSet, Choices, Constraints, Expression, Held, Sampled};
use crate::{Octets, Origin};

/// Maximum length of a buffer: fits into a datagram, and is enough for streams.
const MAX_LEN: usize = 65_000;

/// Maximum number of digits of a number.
const MAX_DIGITS: usize = 23;

/// Maximum number of steps of a buffer, because each adds a level of recursion.
const MAX_STEPS: usize = 256;

/// The requirements on a buffer.
pub(super) struct BufferSpec<'a> {
    pub steps: &'a [Step],
    /// Allowed lengths of the buffer. Steps may restrict them further.
    pub size: Numbers,
    pub style: Style,
    /// The data that `base64_decode` must produce.
    pub decoded: Option<Octets>,
    /// Octets that must be at the start.
    pub lead: Octets,
    /// A template of a message on which to place the octets.
    pub form: Option<&'a Form>,
    pub variables: usize,
}

/// Filler between and around contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Letters.
    Plain,
    /// `name: value` lines.
    Lines,
    /// One line of text: like `Plain`, without separators.
    Text,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// No position was found for this option.
    NoRoom {
        option: u16,
    },
    /// The budget is exhausted.
    TooLong,
    Expression {
        option: u16,
        text: String,
    },
}

/// A laid-out buffer.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub octets: Octets,
    pub variables: Vec<Option<u64>>,
}

/// Lays out `spec` in its `attempt`th variant. Each position that is tried costs a part of
/// `budget`.
pub(super) fn lay_out(
    spec: &BufferSpec<'_>,
    expressions: &Expressions,
    known: &[Option<u64>],
    attempt: u32,
    rng: &mut Rng,
    budget: &mut u64,
) -> Result<Layout, Failed> {
    let mut state = State {
        cells: vec![],
        cursor: 0,
        least: 0,
        most: MAX_LEN,
        sizes: spec.size.clone(),
        variables: if known.is_empty() { vec![None; spec.variables] } else { known.to_vec() },
        forbidden: vec![],
        later: vec![],
        filler: Filler::Letters,
    };
    for (&octet, &origin) in spec.lead.bytes().iter().zip(spec.lead.origins()) {
        state.cells.push(Cell { set: ByteSet::of(octet), wanted: None, origin });
    }
    for spot in spec.form.iter().flat_map(|form| &form.canvas) {
        state.cells.push(match *spot {
            Spot::Fixed(octet) => {
                Cell { set: ByteSet::of(octet), wanted: None, origin: Origin::Framing }
            }
            Spot::Usual(octet) => Cell { wanted: Some(octet), ..Cell::FREE },
        });
    }
    if spec.steps.len() > MAX_STEPS {
        return Err(Failed::TooLong);
    }
    let order = order(spec.steps, attempt);
    let mut search = Search {
        spec,
        expressions,
        order,
        attempt,
        rng,
        budget,
        failed: Failed::NoRoom { option: 0 },
        deepest: 0,
    };
    match search.place(0, state) {
        Some(layout) => Ok(layout),
        None if *search.budget == 0 => Err(Failed::TooLong),
        None => Err(search.failed),
    }
}

/// Steps to place on existing octets, of which only those in `hole` may change.
pub(super) struct Over<'a> {
    pub steps: &'a [Step],
    pub octets: &'a Octets,
    pub hole: std::ops::Range<usize>,
    pub variables: usize,
}

/// Places the steps in the hole, unless the octets satisfy them already.
pub(super) fn lay_over(
    over: &Over<'_>,
    expressions: &Expressions,
    known: &[Option<u64>],
    attempt: u32,
    rng: &mut Rng,
    budget: &mut u64,
) -> Option<Octets> {
    let length = over.octets.len();
    if length > MAX_LEN || over.steps.len() > MAX_STEPS {
        return None;
    }
    let cells = (0..length).map(|at| {
        let (octet, origin) = (over.octets.bytes()[at], over.octets.origins()[at]);
        match over.hole.contains(&at) {
            true => Cell { set: ByteSet::ALL, wanted: Some(octet), origin: Origin::Free },
            false => Cell { set: ByteSet::of(octet), wanted: None, origin },
        }
    });
    let state = State {
        cells: cells.collect(),
        cursor: 0,
        least: length,
        most: length,
        sizes: Numbers::any(),
        variables: if known.is_empty() { vec![None; over.variables] } else { known.to_vec() },
        forbidden: vec![],
        later: vec![],
        filler: Filler::Letters,
    };
    let spec = BufferSpec {
        steps: over.steps,
        size: Numbers::any(),
        style: Style::Plain,
        decoded: None,
        lead: Octets::new(),
        form: None,
        variables: over.variables,
    };
    let order = order(over.steps, attempt);
    let mut search = Search {
        spec: &spec,
        expressions,
        order,
        attempt,
        rng,
        budget,
        failed: Failed::NoRoom { option: 0 },
        deepest: 0,
    };
    search.place(0, state).map(|layout| layout.octets)
}

/// A step, and whether it depends on an earlier one.
#[derive(Clone, Copy)]
struct Ordered<'a> {
    step: &'a Step,
    /// The step starts a chain: its position does not depend on an earlier step.
    first: bool,
}

/// A number in the payload that is extracted to a variable.
struct Extraction<'a> {
    at: usize,
    count: usize,
    reading: &'a squall_rules::Reading,
    variable: Variable,
    option: u16,
}

/// Keeps dependent steps together, and orders independent chains by their degrees of freedom,
/// lowest first.
fn order(steps: &[Step], attempt: u32) -> Vec<Ordered<'_>> {
    let mut chains: Vec<Vec<&Step>> = vec![];
    // Sizes first, because contents at the end of the buffer depend on them.
    let (sizes, others): (Vec<&Step>, Vec<&Step>) =
        steps.iter().partition(|step| matches!(step.operation, Operation::Size(_)));
    for step in others {
        if chains.is_empty() || starts_chain(step) {
            chains.push(vec![]);
        }
        chains.last_mut().expect("one was pushed").push(step);
    }
    let numbered = steps
        .iter()
        .any(|step| matches!(step.operation, Operation::ByteExtract(_) | Operation::ByteMath(_)));
    if !numbered {
        chains.sort_by_key(|chain| {
            let ends = chain.iter().any(
                |step| matches!(&step.operation, Operation::Content(content) if content.endswith),
            );
            match (&chain[0].operation, attempt % 3) {
                (_, 2) => 0,
                (Operation::Pcre(_), 0) => -1,
                (Operation::Pcre(pcre), 1) if pcre.pattern.ends_with('$') => 6,
                (Operation::Content(content), _) if content.depth.is_some() && !ends => 0,
                (Operation::Pcre(_), _) => 3,
                (Operation::Content(_), _) if ends => 5,
                _ => 4,
            }
        });
    }
    let ordered = [sizes].into_iter().chain(chains).flat_map(|chain| {
        chain.into_iter().enumerate().map(|(index, step)| Ordered { step, first: index == 0 })
    });
    ordered.collect()
}

fn starts_chain(step: &Step) -> bool {
    match &step.operation {
        Operation::Content(content) => !content.negated && !content.is_relative(),
        Operation::Pcre(pcre) => !pcre.negated && !pcre.relative,
        Operation::ByteJump(jump) => !jump.reading.relative,
        Operation::ByteExtract(extract) => !extract.reading.relative,
        Operation::ByteMath(math) => !math.reading.relative,
        Operation::Base64Decode(decode) => !decode.relative,
        _ => false,
    }
}

#[derive(Clone, Copy)]
struct Cell {
    set: ByteSet,
    /// Preferred octet of the set.
    wanted: Option<u8>,
    origin: Origin,
}

impl Cell {
    const FREE: Cell = Cell { set: ByteSet::ALL, wanted: None, origin: Origin::Free };

    fn is_free(&self) -> bool {
        self.set == ByteSet::ALL
    }
}

/// Filler for free octets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filler {
    Letters,
    /// All octet values with equal frequency.
    Noise,
    /// A single letter.
    Same,
}

/// The position of an expression's text in a buffer.
struct Text {
    /// Position of its first octet.
    base: usize,
    /// Start of the match. Octets before it are framing or free.
    start: usize,
    /// Number of line-end octets inserted before the match.
    separated: usize,
    option: u16,
}

impl Text {
    /// Adds the text to the state. `None` if it does not fit.
    fn put<'a>(
        &self,
        state: &State<'a>,
        sampled: &Sampled,
        next_is_relative: bool,
    ) -> Option<State<'a>> {
        let mut next = state.clone();
        let mut cells: Vec<Cell> = vec![];
        let repeated: HashSet<usize> =
            sampled.text.iter().filter_map(|slot| slot.same_as).collect();
        for (at, slot) in sampled.text.iter().enumerate() {
            let was = state.cells.get(self.base + at);
            let bound = slot.same_as.is_some() || repeated.contains(&at);
            let set = if bound { ByteSet::of(slot.preferred) } else { slot.allowed };
            // Outside the match, the octets of the canvas keep their origins.
            let (set, wanted, origin) = match was {
                Some(was) if was.set == set => (set, was.wanted, was.origin),
                None if self.base + at < self.start => {
                    let origin = if self.separated > 0 && slot.allowed.len() == 1 {
                        Origin::Framing
                    } else {
                        Origin::Free
                    };
                    (set, slot.allowed.single(), origin)
                }
                _ => (set, Some(slot.preferred), Origin::Option(self.option)),
            };
            let inside = sampled.matched.contains(&at);
            cells.push(Cell {
                set,
                wanted: if inside { Some(slot.preferred) } else { wanted },
                origin,
            });
        }
        if !next.narrow(self.base, cells.into_iter()) {
            return None;
        }
        let length = self.base + sampled.text.len();
        if length >= state.cells.len() {
            if sampled.after.is_empty() {
                if !next.end_at(length) {
                    return None;
                }
            } else if sampled.after != ByteSet::ALL || next_is_relative {
                let delimiters = sampled.after.and(sampled.prolongs.not());
                let set = if next_is_relative && !delimiters.is_empty() {
                    delimiters
                } else {
                    sampled.after
                };
                next.later.push((length, set));
            }
        }
        next.cursor = self.base + sampled.matched.end;
        Some(next)
    }
}

/// A content that must not occur.
#[derive(Clone)]
struct Forbidden<'a> {
    content: &'a Content,
    from: usize,
    /// End of the window, exclusive.
    to: Option<usize>,
}

#[derive(Clone)]
struct State<'a> {
    cells: Vec<Cell>,
    /// End of the previous match.
    cursor: usize,
    /// Bounds of the length of the buffer.
    least: usize,
    most: usize,
    sizes: Numbers,
    variables: Vec<Option<u64>>,
    forbidden: Vec<Forbidden<'a>>,
    /// Constraints on octets beyond the last cell. They apply if the buffer grows that long.
    later: Vec<(usize, ByteSet)>,
    filler: Filler,
}

impl State<'_> {
    fn value(&self, number: Number) -> Option<i64> {
        match number {
            Number::Is(value) => Some(value),
            Number::Variable(index) => self
                .variables
                .get(usize::from(index))
                .copied()
                .flatten()
                .and_then(|value| i64::try_from(value).ok()),
        }
    }

    /// Narrows the cells from `at` on. Returns false if a set becomes empty or the buffer too long.
    fn narrow(&mut self, at: usize, cells: impl ExactSizeIterator<Item = Cell>) -> bool {
        let end = at + cells.len();
        if end > self.most || end > MAX_LEN {
            return false;
        }
        if self.cells.len() < end {
            self.cells.resize(end, Cell::FREE);
            for &(place, set) in &self.later {
                if let Some(cell) = self.cells.get_mut(place) {
                    cell.set = cell.set.and(set);
                    if cell.set.is_empty() {
                        return false;
                    }
                }
            }
        }
        for (cell, new) in self.cells[at..end].iter_mut().zip(cells) {
            let set = cell.set.and(new.set);
            if set.is_empty() {
                return false;
            }
            if cell.set != set || cell.wanted.is_none() {
                let wanted =
                    [new.wanted, cell.wanted].into_iter().flatten().find(|&octet| set.has(octet));
                // The narrower set determines the origin; on a tie, the first.
                let origin =
                    if set == cell.set && !cell.is_free() { cell.origin } else { new.origin };
                *cell = Cell { set, wanted, origin };
            }
        }
        true
    }

    fn need(&mut self, octets: usize) -> bool {
        self.least = self.least.max(octets);
        self.least <= self.most
    }

    fn end_at(&mut self, octets: usize) -> bool {
        self.most = self.most.min(octets);
        self.cells.len() <= self.most && self.need(octets)
    }
}

struct Search<'s, 'a> {
    spec: &'s BufferSpec<'a>,
    expressions: &'s Expressions,
    order: Vec<Ordered<'a>>,
    attempt: u32,
    rng: &'s mut Rng,
    budget: &'s mut u64,
    /// The failure of the step with the highest index reached.
    failed: Failed,
    deepest: usize,
}

impl<'a> Search<'_, 'a> {
    /// Places the step `index` and all later ones.
    fn place(&mut self, index: usize, mut state: State<'a>) -> Option<Layout> {
        if *self.budget == 0 {
            return None;
        }
        *self.budget -= 1;
        let Some(&Ordered { step, first }) = self.order.get(index) else {
            return self.finish(state);
        };
        if first {
            state.cursor = 0;
        }
        let option = step.option;
        if index >= self.deepest {
            self.deepest = index;
            self.failed = Failed::NoRoom { option };
        }
        match &step.operation {
            Operation::Content(content) if content.negated => self.forbid(index, state, content),
            Operation::Content(content) => self.content(index, state, content, first, option),
            Operation::Pcre(pcre) if pcre.negated => self.place(index + 1, state),
            Operation::Pcre(pcre) => self.expression(index, state, pcre, first, option),
            Operation::ByteTest(test) => self.test(index, state, test, option),
            Operation::ByteJump(jump) => self.jump(index, state, jump, option),
            Operation::ByteExtract(extract) => self.extract(index, state, extract, option),
            Operation::ByteMath(math) => self.math(index, state, math, option),
            Operation::IsDataAt(at) => {
                let to = state.value(at.at)?;
                let base = if at.relative { state.cursor as i64 } else { 1 };
                let needed = usize::try_from(base.saturating_add(to).max(0)).ok()?;
                let fits = match at.negated {
                    false => state.need(needed),
                    true => {
                        let most = needed.checked_sub(1)?;
                        state.most = state.most.min(most);
                        state.cells.len() <= most && state.least <= most
                    }
                };
                if fits { self.place(index + 1, state) } else { None }
            }
            Operation::Size(sizes) => {
                state.sizes = state.sizes.intersection(sizes);
                let last = state.sizes.last()?;
                state.most = state.most.min(usize::try_from(last).unwrap_or(MAX_LEN));
                if state.sizes.at_least(state.cells.len() as u64).is_some() {
                    self.place(index + 1, state)
                } else {
                    None
                }
            }
            Operation::Base64Decode(decode) => {
                let Some(decoded) = &self.spec.decoded else { return self.place(index + 1, state) };
                let base = if decode.relative { state.cursor } else { 0 };
                let at = base + decode.offset as usize;
                let text = super::transform::base64(decoded.bytes());
                let origin = decoded
                    .origins()
                    .iter()
                    .copied()
                    .find(|origin| matches!(origin, Origin::Option(_)));
                let origin = origin.unwrap_or(Origin::Option(option));
                // Decoding stops at the first octet outside the alphabet.
                let cells: Vec<Cell> = text
                    .iter()
                    .map(|&octet| Cell { set: ByteSet::of(octet), wanted: None, origin })
                    .collect();
                if !state.narrow(at, cells.into_iter()) {
                    return None;
                }
                self.place(index + 1, state)
            }
            Operation::Absent { .. } => self.place(index + 1, state),
            Operation::Entropy { least, most, offset, octets } => {
                // 26 letters have at most 4.7 bits of entropy per octet. Noise approaches 8 bits
                // only over many octets.
                let (filler, needed) = match (*least > 4.0, *most < 3.5) {
                    (true, _) => (Filler::Noise, 1_024),
                    (_, true) => (Filler::Same, 64),
                    _ => (Filler::Letters, 64),
                };
                state.filler = filler;
                let fits = state.need(
                    (*offset as usize)
                        .saturating_add(octets.map_or(needed, |octets| octets as usize))
                        .min(MAX_LEN),
                );
                if fits { self.place(index + 1, state) } else { None }
            }
            Operation::Asn1(asn1) => {
                let base = if asn1.relative { state.cursor as i64 } else { 0 };
                let at = usize::try_from(base.saturating_add(asn1.offset.into()))
                    .ok()
                    .filter(|&at| at < MAX_LEN)?;
                let there = state.cells.get(at).and_then(|cell| cell.set.single().or(cell.wanted));
                for element in elements(asn1, there) {
                    let mut next = state.clone();
                    let cells = element.into_iter().map(|octet| Cell {
                        set: ByteSet::of(octet),
                        wanted: None,
                        origin: Origin::Option(option),
                    });
                    if next.narrow(at, cells)
                        && let Some(layout) = self.place(index + 1, next)
                    {
                        return Some(layout);
                    }
                }
                None
            }
            Operation::Dataset { is_set: true, values } => {
                for value in values.iter().take(8) {
                    let mut next = state.clone();
                    let cells = value.iter().map(|&octet| Cell {
                        set: ByteSet::of(octet),
                        wanted: None,
                        origin: Origin::Option(option),
                    });
                    if next.narrow(0, cells)
                        && next.end_at(value.len())
                        && let Some(layout) = self.place(index + 1, next)
                    {
                        return Some(layout);
                    }
                }
                None
            }
            Operation::Dataset { is_set: false, .. } => self.place(index + 1, state),
        }
    }

    fn forbid(
        &mut self,
        index: usize,
        mut state: State<'a>,
        content: &'a Content,
    ) -> Option<Layout> {
        let offset = content.offset.and_then(|offset| state.value(offset)).unwrap_or(0).max(0);
        let (from, to) = if content.is_relative() {
            let distance = content.distance.and_then(|distance| state.value(distance)).unwrap_or(0);
            let from = (state.cursor as i64).saturating_add(distance);
            (
                from,
                content
                    .within
                    .and_then(|within| state.value(within))
                    .map(|within| from.saturating_add(within)),
            )
        } else {
            (
                offset,
                content
                    .depth
                    .and_then(|depth| state.value(depth))
                    .map(|depth| offset.saturating_add(depth)),
            )
        };
        let to = to.map(|to| usize::try_from(to.max(0)).unwrap_or(usize::MAX));
        state.forbidden.push(Forbidden {
            content,
            from: usize::try_from(from.max(0)).unwrap_or(0),
            to,
        });
        self.place(index + 1, state)
    }

    fn content(
        &mut self,
        index: usize,
        state: State<'a>,
        content: &'a Content,
        first: bool,
        option: u16,
    ) -> Option<Layout> {
        let length = content.pattern.len();
        let (from, end) = window(&state, content, first)?;
        let most = state.most.min(MAX_LEN);
        let last = end.unwrap_or(most).min(most).checked_sub(length)?;
        if from > last {
            return None;
        }
        let mut places = self.places(&state, content, from, last);
        if let Some(anchor) = self.spec.form.and_then(|form| form.anchor)
            && index == 0
            && content.offset.is_none()
            && content.depth.is_none()
            && anchor <= last
        {
            places.insert(0, (anchor, None));
        }
        for (at, separated) in places {
            // Copying a long buffer costs more, so charge for its length.
            *self.budget = self.budget.saturating_sub(1 + state.cells.len() as u64 / 32);
            if *self.budget == 0 {
                return None;
            }
            let mut next = state.clone();
            if let Some(between) = separated
                && !next.narrow(at - between.len(), between.into_iter())
            {
                continue;
            }
            let cells = content.pattern.iter().map(|&octet| Cell {
                set: ByteSet::letter(octet, content.nocase),
                wanted: Some(octet),
                origin: Origin::Option(option),
            });
            if !next.narrow(at, cells) {
                continue;
            }
            next.cursor = at + length;
            if self.spec.style == Style::Lines
                && content.pattern.ends_with(b":")
                && next.most > next.cursor
            {
                // Engines normalize the separator of a header's name and value to a colon and one
                // space.
                let line = content
                    .pattern
                    .iter()
                    .rposition(|&octet| octet == b'\n')
                    .map_or(0, |end| end + 1);
                let name = &content.pattern[line..length - 1];
                let blank = Cell { set: ByteSet::of(b' '), wanted: None, origin: Origin::Framing };
                if !name.is_empty()
                    && name.iter().all(|&octet| is_token(octet))
                    && !next.narrow(next.cursor, [blank].into_iter())
                {
                    continue;
                }
            }
            if content.endswith && !next.end_at(next.cursor) {
                continue;
            }
            if let Some(layout) = self.place(index + 1, next) {
                return Some(layout);
            }
        }
        None
    }

    /// Positions for a content, best first, each with optional octets to insert in front.
    fn places(
        &mut self,
        state: &State<'a>,
        content: &Content,
        from: usize,
        last: usize,
    ) -> Vec<(usize, Option<Vec<Cell>>)> {
        const MOST: usize = 300;
        // Maximum number of octets to compare, because a repetitive content on a similar buffer
        // would be compared at every offset.
        const MAX_COMPARED: usize = 1 << 16;
        let length = content.pattern.len();
        let sets: Vec<ByteSet> =
            content.pattern.iter().map(|&octet| ByteSet::letter(octet, content.nocase)).collect();
        let end = state.cells.len();
        let mut satisfied = vec![];
        let mut merged = vec![];
        let mut free = vec![];
        let mut compared = 0;
        for at in (from..=last).take_while(|&at| at <= end.max(from)) {
            let under = &state.cells[at.min(end)..(at + length).min(end)];
            let mut is_free = under.len() < length;
            let (mut holds, mut fits, mut touches) = (under.len() == length, true, false);
            for (cell, set) in under.iter().zip(&sets) {
                let both = cell.set.and(*set);
                holds &= both == cell.set
                    || cell.wanted.is_some_and(|wanted| set.has(wanted)) && cell.set.len() <= 2;
                fits &= !both.is_empty();
                touches |= !cell.is_free();
                compared += 1;
                if !fits {
                    break;
                }
            }
            is_free |= !touches;
            match (holds && fits, fits) {
                (true, _) => satisfied.push(at),
                (_, true) if touches => merged.push(at),
                (_, true) if is_free => free.push(at),
                _ => {}
            }
            if satisfied.len() + merged.len() + free.len() >= MOST || compared >= MAX_COMPARED {
                break;
            }
        }
        *self.budget = self.budget.saturating_sub(compared as u64 / 1_024);
        if content.endswith {
            // The content must end the buffer, so its position follows from the buffer's length.
            let least = end.max(state.least).max(from + length);
            let size = state.sizes.at_least(least as u64).map_or(least, |size| size as usize);
            let mut places: Vec<usize> =
                satisfied.iter().copied().filter(|at| at + length == end).collect();
            if !state.sizes.is_any() {
                places.push(size.saturating_sub(length));
            }
            places.push(least.saturating_sub(length).max(end));
            places.extend(end.saturating_sub(length)..=end);
            if state.most < MAX_LEN {
                places.push(state.most.saturating_sub(length));
            }
            places.extend(
                state
                    .sizes
                    .ranges()
                    .take(8)
                    .filter_map(|range| usize::try_from(*range.start()).ok()?.checked_sub(length)),
            );
            places.retain(|at| (from..=last).contains(at));
            places.dedup();
            return places.into_iter().map(|at| (at, None)).collect();
        }
        let mut places: Vec<(usize, Option<Vec<Cell>>)> =
            satisfied.into_iter().map(|at| (at, None)).collect();
        if !content.is_relative() && content.depth.is_none() {
            let at = end.max(from);
            if self.spec.style == Style::Lines
                && content.pattern.starts_with(b"\r\n")
                && ends_line(&state.cells)
                && end >= from + 2
            {
                // Let the content overlap with the end of the previous line.
                places.push((end - 2, None));
            }
            if let Some(between) = self.between(state, content, at) {
                let after = at + between.len();
                if after <= last {
                    places.push((after, Some(between)));
                }
            }
            if at <= last {
                places.push((at, None));
            }
            let gap = at + 1 + self.rng.below(8);
            if gap <= last {
                places.push((gap, None));
            }
        }
        // In later attempts, try another free position as well, so that samples differ.
        let mut open: Vec<usize> =
            free.into_iter().chain([end.max(from)]).filter(|&at| at <= last).collect();
        open.dedup();
        if self.attempt > 0 && !open.is_empty() {
            let spread = last.min(end.max(from) + 16);
            let other = from + self.rng.below(spread.saturating_sub(from) + 1);
            if self.attempt % 2 == 1 { open.push(other) } else { open.insert(0, other) }
        }
        places.extend(open.into_iter().map(|at| (at, None)));
        places.extend(merged.into_iter().map(|at| (at, None)));
        // Also try a position farther away, because a content at the end of its window may leave
        // space for others.
        places.extend(
            [end + length, last]
                .into_iter()
                .filter(|at| (from..=last).contains(at) && *at < end + 4096)
                .map(|at| (at, None)),
        );
        places
    }

    /// Separator between header lines and a content that starts a new one.
    fn between(&mut self, state: &State<'a>, content: &Content, at: usize) -> Option<Vec<Cell>> {
        if self.spec.style != Style::Lines || at != state.cells.len() {
            return None;
        }
        let pattern = &content.pattern;
        let after_line = at == 0 || ends_line(&state.cells);
        // Continue the value of an unfinished header.
        if open_value(&state.cells)
            && !begins_line(pattern)
            && !matches!(pattern.first(), Some(b'\r' | b'\n'))
        {
            return None;
        }
        let mut text: Vec<u8> = vec![];
        // Engines trim blanks at the end of a line.
        let blank =
            state.cells.last().is_some_and(|cell| matches!(cell.set.single(), Some(b' ' | b'\t')));
        if pattern.starts_with(b"\r\n") || pattern.starts_with(b"\n") {
            if after_line {
                text.extend(if at == 0 { &b"Pragma: no-cache"[..] } else { b"DNT: 1" });
            } else if blank {
                text.extend(self.rng.letters(3));
            }
            if pattern[0] == b'\n' {
                text.push(b'\r');
            }
        } else {
            if blank {
                text.extend(self.rng.letters(3));
            }
            if !after_line {
                text.extend(if open_name(&state.cells) { &b": 8\r\n"[..] } else { b"\r\n" });
            }
            if !begins_line(pattern) {
                text.extend(b"X-");
                text.extend(self.rng.letters(5));
                // If the pattern continues the name up to a colon, add no colon here.
                let colon = pattern.iter().position(|&octet| octet == b':');
                let is_name = colon.is_some_and(|colon| {
                    colon < 30 && pattern[..colon].iter().all(|&octet| is_token(octet))
                });
                if !is_name {
                    text.extend(b": ");
                    if matches!(pattern.first(), Some(b' ' | b'\t')) {
                        text.extend(self.rng.letters(3));
                    }
                }
            }
        }
        let cell = |octet| Cell { set: ByteSet::of(octet), wanted: None, origin: Origin::Framing };
        (!text.is_empty()).then(|| text.into_iter().map(cell).collect())
    }

    fn expression(
        &mut self,
        index: usize,
        state: State<'a>,
        pcre: &'a Pcre,
        first: bool,
        option: u16,
    ) -> Option<Layout> {
        let expressions = self.expressions;
        let expression = match expressions.of(option) {
            Ok(expression) => expression,
            Err(text) => {
                self.failed = Failed::Expression { option, text: text.to_string() };
                return None;
            }
        };
        let from = if pcre.relative && !first { state.cursor } else { 0 };
        let end = state.cells.len();
        let lines = self.spec.style == Style::Lines;
        let starts = self.starts(&state, expression, from, pcre.relative);
        let held = self.held(index, &state);
        let avoid: Vec<(&[u8], bool)> = self.avoided();
        let branches = expression.branches();
        let seed = self.rng.next();
        // Other attempts take other branches of the expression.
        let attempt = u64::from(self.attempt);
        let choices = Choices {
            seed,
            varied: attempt % 3 == 2,
            branch: (attempt > 0).then(|| attempt % branches),
        };
        let next_is_relative = self.order.get(index + 1).is_some_and(|next| !next.first);
        let held_first = self.attempt.is_multiple_of(2);
        for with_held in [held_first, !held_first] {
            if with_held && held.is_empty() {
                continue;
            }
            for &(start, separated) in &starts {
                *self.budget = self.budget.saturating_sub(300 + state.cells.len() as u64 / 8);
                if *self.budget == 0 {
                    return None;
                }
                // A relative expression sees only the octets from the cursor on.
                let base = from.min(end);
                let mut canvas: Vec<ByteSet> =
                    state.cells[base..].iter().map(|cell| cell.set).collect();
                canvas.extend([ByteSet::of(b'\r'), ByteSet::of(b'\n')].iter().take(separated));
                let start = start + separated;
                canvas.resize(canvas.len().max(start - base), ByteSet::ALL);
                let most = state.most.min(MAX_LEN).saturating_sub(base);
                let held: &[Held<'_>] = if with_held { &held } else { &[] };
                let sample = |canvas: &[ByteSet], start: usize, least: usize| {
                    let constraints = Constraints {
                        canvas,
                        start,
                        from_beginning: true,
                        preferred: preferred(self.attempt),
                        least,
                        most,
                        holds: held,
                        avoid: &avoid,
                        steps: 30_000,
                        ..Constraints::default()
                    };
                    expression.sample(&choices, &constraints)
                };
                let mut start = start;
                let Some(mut sampled) = sample(&canvas, start - base, 0) else { continue };
                // If the buffer must end with this text, the end of the text must be at an allowed
                // length of the buffer.
                let length = (base + sampled.text.len()) as u64;
                if sampled.after.is_empty()
                    && !state.sizes.contains(length.max(state.least as u64))
                    && let Some(least) = state.sizes.at_least(length.max(state.least as u64))
                    && let Some(longer) = sample(
                        &canvas,
                        start - base,
                        usize::try_from(least).unwrap_or(MAX_LEN).saturating_sub(base),
                    )
                {
                    sampled = longer;
                }
                if lines {
                    for _ in 0..4 {
                        let text: Vec<u8> = sampled.bytes();
                        let Some((better, begin)) =
                            as_lines(&text, &sampled, &canvas, start - base, base == 0)
                        else {
                            break;
                        };
                        let Some(other) = sample(&better, begin, 0) else { break };
                        start = base + begin;
                        canvas = better;
                        sampled = other;
                    }
                }
                let text = Text { base, start, separated, option };
                let Some(next) = text.put(&state, &sampled, next_is_relative) else { continue };
                if let Some(layout) = self.place(index + 1, next) {
                    return Some(layout);
                }
            }
        }
        None
    }

    /// Positions for the start of a match, each with a number of line-end octets to insert in
    /// front. Positions on existing octets that can start the match come first, then the end of the
    /// buffer.
    fn starts(
        &mut self,
        state: &State<'a>,
        expression: &Expression,
        from: usize,
        relative: bool,
    ) -> Vec<(usize, usize)> {
        let end = state.cells.len();
        let beginning = expression.first_bytes();
        let mut starts: Vec<(usize, usize)> = vec![];
        if relative && from <= end {
            starts.push((from, 0));
        }
        let mut over: Vec<usize> = (from..end)
            .filter(|&at| {
                let cell = &state.cells[at];
                !cell.is_free() && beginning.is_some_and(|set| !set.and(cell.set).is_empty())
            })
            .take(12)
            .collect();
        if from == 0 {
            over.insert(0, 0);
        }
        if state.most == end {
            // The buffer cannot grow, so try free cells: the first few of them, and a selection of
            // later ones.
            let free: Vec<usize> = (from..end).filter(|&at| state.cells[at].is_free()).collect();
            over.extend(free.iter().take(6));
            over.extend(free.iter().skip(6).step_by((free.len() / 24).max(1)));
        }
        let (lines, after) = (self.spec.style == Style::Lines, end.max(from));
        let mut append = vec![];
        if end > 0 && lines && !ends_line(&state.cells) && !relative {
            append.push((after, 2));
        }
        append.push((after, 0));
        append.push((after + 1 + self.rng.below(4), 0));
        starts.extend(over.into_iter().map(|at| (at, 0)));
        starts.extend(append);
        let mut once: Vec<(usize, usize)> = vec![];
        for start in starts {
            if !once.contains(&start) {
                once.push(start);
            }
        }
        once
    }

    /// Contents of steps after `index` that the text of an expression could contain.
    fn held(&self, index: usize, state: &State<'a>) -> Vec<Held<'a>> {
        let mut held: Vec<Held<'a>> = vec![];
        for ordered in &self.order[index + 1..] {
            let Operation::Content(content) = &ordered.step.operation else { continue };
            if content.negated {
                continue;
            }
            let gap = match (
                content.is_relative() && !ordered.first && !held.is_empty(),
                content.distance,
                content.within,
            ) {
                (true, distance, within) => {
                    let distance =
                        distance.and_then(|distance| state.value(distance)).unwrap_or(0).max(0)
                            as usize;
                    let most = match within.and_then(|within| state.value(within)) {
                        Some(within) => (distance + usize::try_from(within).unwrap_or(0))
                            .saturating_sub(content.pattern.len()),
                        None => MAX_LEN,
                    };
                    Some((distance, most.max(distance)))
                }
                _ => None,
            };
            held.push(Held { bytes: &content.pattern, nocase: content.nocase, gap });
        }
        held
    }

    /// Contents that must not occur anywhere.
    fn avoided(&self) -> Vec<(&'a [u8], bool)> {
        let negated = self.order.iter().filter_map(|ordered| match &ordered.step.operation {
            Operation::Content(content)
                if content.negated
                    && !content.is_relative()
                    && content.depth.is_none()
                    && content.offset.is_none()
                    && !content.endswith =>
            {
                Some((content.pattern.as_slice(), content.nocase))
            }
            _ => None,
        });
        negated.collect()
    }

    /// Position of a number. `None` if it would be before the start of the buffer.
    fn number_at(state: &State<'a>, offset: Number, relative: bool) -> Option<usize> {
        let base = if relative { state.cursor as i64 } else { 0 };
        usize::try_from(base.checked_add(state.value(offset)?)?).ok().filter(|&at| at < MAX_LEN)
    }

    /// The state with `number` written at `at`, in each possible form: zero-padded, or followed by
    /// a terminator.
    fn write(
        &self,
        state: &State<'a>,
        at: usize,
        count: usize,
        number: u64,
        reading: &squall_rules::Reading,
        option: u16,
    ) -> Vec<State<'a>> {
        let mut ways: Vec<Vec<(ByteSet, u8)>> = vec![];
        if reading.digits.is_some()
            && let Some(octets) = number::write(number, count, reading)
        {
            let short: Vec<u8> =
                match octets.iter().position(|&octet| octet != b'0' && octet != b' ') {
                    Some(first) => octets[first..].to_vec(),
                    None => b"0".to_vec(),
                };
            let after = state.cells.get(at + short.len());
            if short.len() < octets.len()
                && after.is_some_and(|cell| cell.set.and(ByteSet::range(b'0', b'9')).is_empty())
            {
                ways.push(short.iter().map(|&octet| (ByteSet::of(octet), octet)).collect());
            }
            if short.len() < octets.len() {
                let end: &[u8] = match self.spec.style {
                    Style::Lines => b"\r\n",
                    _ => b" ",
                };
                let mut way: Vec<(ByteSet, u8)> =
                    short.iter().map(|&octet| (ByteSet::of(octet), octet)).collect();
                way.extend(end.iter().map(|&octet| (ByteSet::of(octet), octet)));
                // The number ends only at an octet other than a digit, and the octet after it may
                // be fixed to a digit.
                if self.spec.style == Style::Lines {
                    ways.insert(0, way);
                } else {
                    ways.push(way);
                }
            }
        }
        if let Some(octets) = number::write(number, count, reading) {
            let rest = reading.bitmask.filter(|_| reading.digits.is_none());
            let plain: Vec<(ByteSet, u8)> =
                octets.iter().map(|&octet| (ByteSet::of(octet), octet)).collect();
            let at_most = if self.spec.style == Style::Lines { ways.len() } else { 0 };
            ways.insert(at_most, plain.clone());
            // Bits outside the mask may keep their values.
            if let Some(mask) = rest {
                let mut mask = mask.to_be_bytes()[8 - count.min(8)..].to_vec();
                if reading.little_endian {
                    mask.reverse();
                }
                let loose = octets
                    .iter()
                    .zip(&mask)
                    .map(|(&octet, &mask)| {
                        (
                            (0..=255_u8)
                                .filter(|other| other & mask == octet & mask)
                                .fold(ByteSet::NONE, ByteSet::with),
                            octet,
                        )
                    })
                    .collect();
                ways.push(loose);
            }
        }
        let mut states = vec![];
        for way in ways {
            let mut next = state.clone();
            let cells: Vec<Cell> = way
                .iter()
                .map(|&(set, octet)| Cell {
                    set,
                    wanted: Some(octet),
                    origin: Origin::Option(option),
                })
                .collect();
            if next.narrow(at, cells.into_iter()) && next.need(at + count) {
                states.push(next);
            }
        }
        states
    }

    /// The number at this position, if its cells are fixed.
    fn read(
        state: &State<'a>,
        at: usize,
        count: usize,
        reading: &squall_rules::Reading,
    ) -> Option<u64> {
        let cells = state.cells.get(at..at.checked_add(count)?)?;
        let octets: Option<Vec<u8>> = cells
            .iter()
            .map(|cell| cell.set.single().or(cell.wanted.filter(|_| cell.set.len() <= 2)))
            .collect();
        number::read(&octets?, reading)
    }

    fn test(
        &mut self,
        index: usize,
        state: State<'a>,
        test: &ByteTest,
        option: u16,
    ) -> Option<Layout> {
        let count =
            usize::try_from(state.value(test.count)?).ok().filter(|&count| count <= MAX_DIGITS)?;
        let count = octets_for(count, &test.reading);
        let at = Self::number_at(&state, test.offset, test.reading.relative)?;
        // Combine consecutive tests of the same number.
        let mut tests: Vec<(Comparison, u64, bool)> = vec![];
        let mut after = index;
        while let Some(Ordered {
            step: Step { operation: Operation::ByteTest(other), .. },
            first: false,
        }) = self
            .order
            .get(after)
            .copied()
            .map(|ordered| Ordered { first: ordered.first && after != index, ..ordered })
        {
            if other.count != test.count
                || other.offset != test.offset
                || other.reading != test.reading
            {
                break;
            }
            tests.push((
                other.operator,
                u64::try_from(state.value(other.value)?).unwrap_or(u64::MAX),
                other.negated,
            ));
            after += 1;
        }
        if let Some(number) = Self::read(&state, at, count, &test.reading) {
            let holds = tests
                .iter()
                .all(|&(operator, value, negated)| number::holds(number, operator, value, negated));
            return if holds { self.place(after, state) } else { None };
        }
        let mut numbers = number::candidates(&tests, number::greatest(count, &test.reading));
        if test.reading.digits.is_some() {
            let more = [9, 99, 999, 9_999, 99_999].into_iter().filter(|&number| {
                tests.iter().all(|&(operator, value, negated)| {
                    number::holds(number, operator, value, negated)
                })
            });
            numbers.extend(more);
        }
        if self.attempt > 0 && numbers.len() > 1 {
            let other = self.rng.below(numbers.len().min(3));
            numbers.swap(0, other);
        }
        for number in numbers.into_iter().take(24) {
            for next in self.write(&state, at, count, number, &test.reading, option) {
                if let Some(layout) = self.place(after, next) {
                    return Some(layout);
                }
            }
        }
        None
    }

    fn jump(
        &mut self,
        index: usize,
        state: State<'a>,
        jump: &ByteJump,
        option: u16,
    ) -> Option<Layout> {
        let count =
            usize::try_from(state.value(jump.count)?).ok().filter(|&count| count <= MAX_DIGITS)?;
        let count = octets_for(count, &jump.reading);
        let at = Self::number_at(&state, jump.offset, jump.reading.relative)?;
        let post = state.value(jump.post_offset)?;
        let multiplier = u64::from(jump.multiplier.max(1));
        let land = |number: u64, length: usize| -> Option<usize> {
            let mut by = number.checked_mul(multiplier)?;
            if jump.align {
                by = by.checked_next_multiple_of(4)?;
            }
            let base = match jump.from {
                JumpFrom::Beginning => 0,
                JumpFrom::Here => at + count,
                JumpFrom::End => length,
            };
            let target = (base as i64).checked_add(i64::try_from(by).ok()?)?.checked_add(post)?;
            usize::try_from(target.max(0)).ok().filter(|&target| target < MAX_LEN)
        };
        let try_at = |search: &mut Self, mut next: State<'a>, number: u64| -> Option<Layout> {
            if jump.from == JumpFrom::End {
                // The length of the buffer must be known, so try the minimum, and some larger ones.
                let least = next.cells.len().max(next.least).max(1);
                for more in [
                    0,
                    1,
                    2,
                    4,
                    8,
                    16,
                    usize::try_from(post.saturating_neg()).unwrap_or(0).min(MAX_LEN),
                ] {
                    let mut next = next.clone();
                    let length = next.sizes.at_least((least + more) as u64)? as usize;
                    let Some(target) = land(number, length).filter(|&target| target < length)
                    else {
                        continue;
                    };
                    if next.end_at(length) {
                        next.cursor = target;
                        if let Some(layout) = search.place(index + 1, next) {
                            return Some(layout);
                        }
                    }
                }
                return None;
            }
            next.cursor = land(number, 0)?;
            if !next.need(next.cursor + 1) {
                return None;
            }
            search.place(index + 1, next)
        };
        if count == 0 {
            return try_at(self, state, 0);
        }
        if let Some(number) = Self::read(&state, at, count, &jump.reading) {
            return try_at(self, state, number);
        }
        let base = match jump.from {
            JumpFrom::Here => at + count,
            _ => 0,
        };
        let end = state.cells.len().max(at + count);
        // Try to jump to the end first, then to existing octets, then a little beyond the end.
        let mut targets =
            vec![end as i64, end as i64 + 4, base as i64, base as i64 + 1, base as i64 + 4];
        targets.extend((0..64).map(|back| end as i64 - back));
        targets.extend((0..64).map(|more| end as i64 + more));
        let greatest = number::greatest(count, &jump.reading);
        let mut numbers: Vec<u64> = vec![];
        for target in targets {
            let by = target.saturating_sub(base as i64).saturating_sub(post);
            if let Ok(by) = u64::try_from(by) {
                let number = by.div_ceil(multiplier);
                if number <= greatest && !numbers.contains(&number) {
                    numbers.push(number);
                }
            }
        }
        for number in [0, 1, 2, 4, 8, 16] {
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        for number in numbers {
            for next in self.write(&state, at, count, number, &jump.reading, option) {
                if let Some(layout) = try_at(self, next, number) {
                    return Some(layout);
                }
                if *self.budget == 0 {
                    return None;
                }
            }
        }
        None
    }

    fn extract(
        &mut self,
        index: usize,
        state: State<'a>,
        extract: &ByteExtract,
        option: u16,
    ) -> Option<Layout> {
        let count = usize::from(extract.count);
        let at = Self::number_at(&state, extract.offset, extract.reading.relative)?;
        let kept =
            Extraction { at, count, reading: &extract.reading, variable: extract.variable, option };
        self.keep(index, &state, &kept, &[], |number| {
            let value = number.checked_mul(u64::from(extract.multiplier.max(1)))?;
            match extract.align {
                0 => Some(value),
                align => value.checked_next_multiple_of(u64::from(align)),
            }
        })
    }

    fn math(
        &mut self,
        index: usize,
        state: State<'a>,
        math: &ByteMath,
        option: u16,
    ) -> Option<Layout> {
        let count =
            usize::try_from(state.value(math.count)?).ok().filter(|&count| count <= MAX_DIGITS)?;
        let at = Self::number_at(&state, math.offset, math.reading.relative)?;
        let value = u64::try_from(state.value(math.value)?).ok()?;
        let kept = Extraction { at, count, reading: &math.reading, variable: math.result, option };
        let also =
            [value, value.saturating_add(1), value.saturating_mul(2), value.saturating_mul(8)];
        self.keep(index, &state, &kept, &also, |number| number::calculate(math, number, value))
    }

    /// Continues with the number at this position if it is fixed, otherwise with each plausible
    /// number and those in `also`. `value` computes the variable from the number.
    fn keep(
        &mut self,
        index: usize,
        state: &State<'a>,
        kept: &Extraction<'_>,
        also: &[u64],
        value: impl Fn(u64) -> Option<u64>,
    ) -> Option<Layout> {
        let &Extraction { at, count, reading, variable, option } = kept;
        let fixed = Self::read(state, at, count, reading);
        let greatest = number::greatest(count, reading);
        let numbers = match fixed {
            Some(number) => vec![number],
            None => [&self.sizes_worth_trying(state, at + count), also].concat(),
        };
        for number in numbers.into_iter().filter(|&number| number <= greatest || fixed.is_some()) {
            let Some(value) = value(number) else { continue };
            for mut next in self.write(state, at, count, number, reading, option) {
                next.cursor = at + count;
                *next.variables.get_mut(usize::from(variable))? = Some(value);
                if let Some(layout) = self.place(index + 1, next) {
                    return Some(layout);
                }
                if *self.budget == 0 {
                    return None;
                }
            }
        }
        None
    }

    /// Plausible values of a length, offset or count, small ones first.
    fn sizes_worth_trying(&mut self, state: &State<'a>, after: usize) -> Vec<u64> {
        let mut numbers = vec![
            8, 16, 4, 1, 0, 2, 32, 64, 12, 24, 48, 96, 100, 128, 200, 255, 256, 512, 1024, 4096, 3,
            5, 6, 7, 9, 10,
        ];
        let lengths: Vec<u64> = self
            .order
            .iter()
            .filter_map(|ordered| match &ordered.step.operation {
                Operation::Content(content) => Some(content.pattern.len() as u64),
                Operation::ByteTest(test) => match test.value {
                    Number::Is(value) => u64::try_from(value).ok(),
                    Number::Variable(_) => None,
                },
                _ => None,
            })
            .collect();
        numbers.extend(
            lengths
                .iter()
                .flat_map(|&length| [length, length.saturating_add(1), length.saturating_sub(1)]),
        );
        numbers.extend([after as u64, state.cells.len() as u64]);
        let mut once = vec![];
        for number in numbers {
            if !once.contains(&number) {
                once.push(number);
            }
        }
        if self.attempt > 0 {
            let other = self.rng.below(once.len().min(6));
            once.swap(0, other);
        }
        once
    }

    /// Fills free cells and checks the negated contents.
    fn finish(&mut self, state: State<'a>) -> Option<Layout> {
        let least = state.cells.len().max(state.least);
        let length = usize::try_from(state.sizes.at_least(least as u64)?).ok()?;
        if length > state.most || length > MAX_LEN {
            return None;
        }
        // Terminate the last header line, too, without a trailing blank.
        let mut tail: &[u8] = b"";
        if self.spec.style == Style::Lines
            && state.most >= length + 5
            && state.sizes.is_any()
            && length == state.cells.len()
        {
            tail = match state.cells.last().map(|cell| cell.set.single()) {
                _ if open_name(&state.cells) => b": 8\r\n",
                Some(Some(b'\n')) | None => b"",
                Some(Some(b' ' | b'\t')) => b"abc\r\n",
                Some(Some(b':')) => b" abc\r\n",
                Some(Some(b'\r')) => b"\n",
                _ => b"\r\n",
            };
            if state.later.iter().any(|(at, set)| {
                tail.get(at.wrapping_sub(length)).is_some_and(|&octet| !set.has(octet))
            }) {
                tail = b"";
            }
        }
        for filler in 0..4 {
            let mut octets = Octets::new();
            for at in 0..length {
                let mut cell = state.cells.get(at).copied().unwrap_or(Cell::FREE);
                if at >= state.cells.len() {
                    for (_, set) in state.later.iter().filter(|(place, _)| *place == at) {
                        cell.set = cell.set.and(*set);
                    }
                }
                let octet = match cell.wanted.filter(|wanted| cell.set.has(*wanted)) {
                    Some(wanted) => wanted,
                    None if cell.is_free() && state.filler == Filler::Noise => {
                        self.rng.next() as u8
                    }
                    None if cell.is_free() && state.filler == Filler::Same => b'e',
                    None => self.free(&cell.set, filler),
                };
                octets.push(octet, if cell.is_free() { Origin::Free } else { cell.origin });
            }
            octets.extend(tail, Origin::Framing);
            if state.forbidden.iter().all(|forbidden| !forbidden.is_in(octets.bytes())) {
                return Some(Layout { octets, variables: state.variables });
            }
        }
        None
    }

    fn free(&mut self, set: &ByteSet, filler: u32) -> u8 {
        let ranges: &[&[u8]] = &[b"abcdefghijklmnopqrstuvwxyz", b"QWXZVYKJ", b"0123456789", b"_~-"];
        for choice in 0..ranges.len() {
            let range = ranges[(choice + filler as usize) % ranges.len()];
            let octet = *self.rng.pick(range);
            if set.has(octet) {
                return octet;
            }
            if let Some(&octet) = range.iter().find(|&&octet| set.has(octet)) {
                return octet;
            }
        }
        set.iter()
            .find(|octet| octet.is_ascii_graphic())
            .or_else(|| set.iter().next())
            .unwrap_or(b'x')
    }
}

/// Octets that turn the text into HTTP header lines (`name: value`), each ended by CR LF, none of
/// them empty. Also returns the new start of the text. `None` if the text is valid already, or
/// cannot become valid.
fn as_lines(
    text: &[u8],
    sampled: &crate::regex::Sampled,
    canvas: &[ByteSet],
    start: usize,
    from_beginning: bool,
) -> Option<(Vec<ByteSet>, usize)> {
    let fixed = |text: &[u8]| text.iter().map(|&octet| ByteSet::of(octet)).collect::<Vec<_>>();
    let upto = |at: usize| sampled.text[..at].iter().map(|slot| slot.allowed).collect::<Vec<_>>();
    // The text starts with an empty line, so put a header before it.
    if from_beginning && canvas.is_empty() && text.starts_with(b"\r\n") {
        let first = fixed(b"Pragma: no-cache");
        let begin = first.len();
        return Some((first, begin));
    }
    for at in 0..text.len() {
        if at < canvas.len().max(start) && at < canvas.len() {
            continue;
        }
        let line = text[..at].iter().rposition(|&octet| octet == b'\n').map_or(0, |end| end + 1);
        match text[at] {
            b'\n' if at > 0 && text[at - 1] != b'\r' => {
                let mut better = upto(at);
                better.extend(fixed(b"\r\n"));
                return Some((better, start));
            }
            b':' if at > line && text[line..at].iter().all(|&octet| is_token(octet)) => {
                let next = text.get(at + 1);
                if (line > 0 || from_beginning) && next.is_some_and(|&next| next != b' ') {
                    let mut better = upto(at + 1);
                    better.extend(fixed(b" "));
                    return Some((better, start));
                }
            }
            _ => {}
        }
    }
    None
}

/// Complete BER elements (X.690 §8) with one of the requested defects. The shortest come first,
/// because some engines inspect only a single packet. `there` is the octet at the position, if it
/// is fixed.
fn elements(asn1: &squall_rules::Asn1, there: Option<u8>) -> Vec<Vec<u8>> {
    let mut elements = vec![];
    if asn1.bitstring_overflow {
        // A bit string that announces more unused bits than it has.
        elements.push(vec![0x03, 0x01, 0xff]);
    }
    if asn1.double_overflow {
        // A real in decimal encoding (§8.5.8) of more than 256 octets.
        let mut element = vec![0x09, 0x82, 0x01, 0x04, 0x03];
        element.resize(4 + 0x104, b'1');
        elements.push(element);
    }
    if let Some(length) = asn1.oversize_length {
        let length = (length.min(60_000) + 1) as usize;
        // An octet string, or an element with a non-universal tag, whose content is not checked.
        let tag = there.filter(|tag| tag & 0xc0 != 0 && tag & 0x1f != 0x1f).unwrap_or(0x04);
        let mut element = vec![tag, 0x82, (length >> 8) as u8, length as u8];
        element.resize(4 + length, b'a');
        elements.push(element);
    }
    elements
}

/// Number of octets for a number. For digits, a count of 0 means any number of digits.
fn octets_for(count: usize, reading: &squall_rules::Reading) -> usize {
    const DIGITS: usize = 10;
    if count == 0 && reading.digits.is_some() { DIGITS } else { count }
}

/// Preferred filler; varies with the attempt.
fn preferred(attempt: u32) -> ByteSet {
    let small = ByteSet::range(b'a', b'z');
    match attempt % 3 {
        0 => small,
        1 => small.or(ByteSet::range(b'0', b'9')),
        _ => small.or(ByteSet::range(b'0', b'9')).or(ByteSet::range(b'A', b'Z')),
    }
}

/// The window (start, exclusive end) for a content. `None` if it is empty.
fn window(state: &State<'_>, content: &Content, first: bool) -> Option<(usize, Option<usize>)> {
    let given = |number: Option<Number>| match number {
        Some(number) => state.value(number).map(Some),
        None => Some(None),
    };
    let (base, after, inside) = if content.is_relative() {
        let cursor = if first { 0 } else { state.cursor };
        (cursor as i64, given(content.distance)?.unwrap_or(0), given(content.within)?)
    } else {
        (0, given(content.offset)?.unwrap_or(0), given(content.depth)?)
    };
    let from = base.checked_add(after)?.max(0);
    let end = match inside {
        Some(inside) => Some(usize::try_from(base.checked_add(after)?.checked_add(inside)?).ok()?),
        None => None,
    };
    Some((usize::try_from(from).ok().filter(|&from| from < MAX_LEN)?, end))
}

impl Forbidden<'_> {
    fn is_in(&self, octets: &[u8]) -> bool {
        let to = self.to.unwrap_or(usize::MAX).min(octets.len());
        let pattern = &self.content.pattern;
        let Some(window) = octets.get(self.from.min(to)..to) else { return false };
        if pattern.is_empty() || window.len() < pattern.len() {
            return false;
        }
        let same = |part: &[u8]| match self.content.nocase {
            true => part.eq_ignore_ascii_case(pattern),
            false => part == pattern,
        };
        match self.content.endswith {
            true => to == octets.len() && same(&window[window.len() - pattern.len()..]),
            false => window.windows(pattern.len()).any(same),
        }
    }
}

/// Whether the last line is just a header name with colon and blank.
fn open_value(cells: &[Cell]) -> bool {
    match cells {
        [name @ .., colon, blank] => {
            colon.set.single() == Some(b':') && blank.set.single() == Some(b' ') && open_name(name)
        }
        _ => false,
    }
}

/// Whether the last line is just a header name.
fn open_name(cells: &[Cell]) -> bool {
    let octets: Vec<Option<u8>> = cells
        .iter()
        .rev()
        .map(|cell| cell.set.single().or(cell.wanted))
        .take_while(|octet| *octet != Some(b'\n'))
        .collect();
    octets.len() > 2 && octets.iter().all(|octet| octet.is_some_and(is_token))
}

fn ends_line(cells: &[Cell]) -> bool {
    cells.last().is_some_and(|cell| cell.set.single() == Some(b'\n'))
}

/// Whether the pattern is `Name:` or a prefix of that.
fn begins_line(pattern: &[u8]) -> bool {
    match pattern.iter().position(|&octet| octet == b':') {
        Some(colon) => {
            colon > 0
                && pattern[..colon].iter().all(|&octet| is_token(octet))
                && pattern[0].is_ascii_uppercase()
        }
        None => false,
    }
}

pub(super) fn is_token(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet)
}
