//! Executes a program and generates a text that matches.

use std::collections::HashSet;
use std::ops::Range;

use squall_units::mix;

use super::ByteSet;
use super::program::{Instruction, Place, Program};
use super::syntax::{Assertion, NEWLINE, RepeatKind, WORD};

/// Selects one of the possible texts. Equal choices give equal texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// Seed for free octets.
    pub seed: u64,
    /// Choose alternatives and repetitions at random by the seed, instead of the shortest text.
    pub varied: bool,
    /// The branch of alternatives, below [`super::Expression::branches`].
    pub branch: Option<u64>,
}

impl Choices {
    /// Selects the shortest text.
    pub fn plain() -> Self {
        Self::default()
    }

    /// Selects the shortest text, with free octets determined by `seed`.
    pub fn seeded(seed: u64) -> Self {
        Choices { seed, ..Self::default() }
    }

    pub fn varied(seed: u64) -> Self {
        Choices { seed, varied: true, branch: None }
    }

    pub fn branch(seed: u64, branch: u64) -> Self {
        Choices { seed, varied: false, branch: Some(branch) }
    }

    /// A pseudorandom number that depends only on the seed and `what`, and not on earlier draws.
    fn draw(&self, what: u64) -> u64 {
        mix(self.seed, what)
    }
}

/// Constraints on a text, in addition to the expression.
#[derive(Clone, Debug)]
pub struct Constraints<'a> {
    /// Existing octets, each a set of possible values. The match is placed on them and may extend
    /// beyond their end.
    pub canvas: &'a [ByteSet],
    /// Start of the match in the canvas, as an index.
    pub start: usize,
    /// The first octet of the canvas (or of the text, if there is no canvas) is the first octet of
    /// the subject.
    pub from_beginning: bool,
    /// Allowed octets.
    pub alphabet: ByteSet,
    /// Preferred octets.
    pub preferred: ByteSet,
    /// Bounds of the length of the text.
    pub least: usize,
    pub most: usize,
    /// Strings that the text must contain, in this order.
    pub holds: &'a [Held<'a>],
    /// Strings that must not occur, each with a flag that is true if case is ignored.
    pub avoid: &'a [(&'a [u8], bool)],
    /// Maximum number of steps of the search.
    pub steps: u32,
}

impl Default for Constraints<'_> {
    fn default() -> Self {
        Constraints {
            canvas: &[],
            start: 0,
            from_beginning: false,
            alphabet: ByteSet::ALL,
            preferred: ByteSet::ALL,
            least: 0,
            most: MAX_LEN,
            holds: &[],
            avoid: &[],
            steps: 400_000,
        }
    }
}

// Maximum length, because a text must fit into a datagram.
const MAX_LEN: usize = 65_535;
/// Maximum depth of nested group calls.
const MAX_DEPTH: usize = 64;
/// Number of fillings to try for one path through the expression.
const FILLINGS: u64 = 12;

/// A string that the text must contain.
#[derive(Clone, Debug, Default)]
pub struct Held<'a> {
    pub bytes: &'a [u8],
    pub nocase: bool,
    /// Minimum and maximum number of octets between the end of the previous string (or the start of
    /// the text) and this one.
    pub gap: Option<(usize, usize)>,
}

/// An octet of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Values that match as well if the other octets stay, unless lookarounds are involved.
    pub allowed: ByteSet,
    /// The octet that was chosen.
    pub preferred: u8,
    /// Index of an earlier octet that this one must equal, because of a back-reference.
    pub same_as: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// The match, and the octets before and after it that lookarounds require.
    pub text: Vec<Slot>,
    /// Range of the match in `text`.
    pub matched: Range<usize>,
    /// Octets that may precede the text. Empty if the text must be at the start of the subject.
    pub before: ByteSet,
    /// Octets that may follow the text. Empty if the text must be at the end of the subject.
    pub after: ByteSet,
    /// Octets that would extend the match if they followed the text.
    pub prolongs: ByteSet,
    /// Ranges in `text` of the groups, from group 0 (the whole match).
    pub captures: Vec<Option<Range<usize>>>,
    /// Ranges in `text` of the strings in [`Constraints::holds`].
    pub holds: Vec<Range<usize>>,
}

impl Sampled {
    pub fn bytes(&self) -> Vec<u8> {
        self.text.iter().map(|slot| slot.preferred).collect()
    }
}

pub(super) fn sample(
    program: &Program,
    choices: &Choices,
    ways: &[u32],
    constraints: &Constraints<'_>,
) -> Option<Sampled> {
    // First try with a memory of failed states, which is exact unless parts of the expression
    // depend on each other.
    Writer::new(program, choices, ways, constraints, true)
        .run()
        .or_else(|| Writer::new(program, choices, ways, constraints, false).run())
}

#[derive(Clone, Copy)]
struct Cell {
    set: ByteSet,
    hint: Option<u8>,
    /// Whether the octet must exist. If not, `set` constrains it only if it exists.
    must: bool,
}

#[derive(Clone, Copy)]
struct State {
    at: Place,
    pos: usize,
    /// Number of required strings already written; `partial` is the number of octets written of the
    /// next one.
    held: usize,
    partial: usize,
    held_end: usize,
}

struct Choice {
    state: State,
    option: u32,
    trail: usize,
    cells: usize,
}

#[derive(Clone)]
struct Frame {
    group: u32,
    back: Place,
    counters: Vec<(u32, usize)>,
    captures: Vec<Option<(usize, usize)>>,
}

enum Undo {
    Cell(usize, Cell),
    Counter(usize, (u32, usize)),
    Capture(usize, Option<(usize, usize)>),
    Opened(usize, usize),
    PushedFrame,
    PoppedFrame(Box<Frame>),
    PushedLook,
    PoppedLook(usize),
    Begin(Option<usize>),
    End(Option<usize>),
    Keep(Option<usize>),
    Not,
    Link,
    Prolongs((usize, ByteSet)),
    HeldAt,
}

struct Not {
    at: Place,
    pos: usize,
    /// The bounds of the length, for a lookbehind.
    lookbehind: Option<(usize, usize)>,
}

struct Writer<'p> {
    program: &'p Program,
    choices: &'p Choices,
    ways: &'p [u32],
    constraints: &'p Constraints<'p>,
    /// Compare with the given text instead of writing.
    frozen: bool,
    remember: Option<HashSet<u64>>,
    steps: u32,
    /// Cells before the text, for lookbehinds.
    lead: usize,
    cells: Vec<Cell>,
    counters: Vec<(u32, usize)>,
    captures: Vec<Option<(usize, usize)>>,
    opened: Vec<usize>,
    frames: Vec<Frame>,
    looks: Vec<usize>,
    begin: Option<usize>,
    end: Option<usize>,
    keep: Option<usize>,
    nots: Vec<Not>,
    /// Index of the later octet, index of the earlier octet, whether case is ignored.
    links: Vec<(usize, usize, bool)>,
    /// Position at which loops ended that could have continued, and the octets with which they
    /// would continue.
    prolongs: (usize, ByteSet),
    held_at: Vec<usize>,
    trail: Vec<Undo>,
    choice_points: Vec<Choice>,
    now: State,
}

impl<'p> Writer<'p> {
    fn new(
        program: &'p Program,
        choices: &'p Choices,
        ways: &'p [u32],
        constraints: &'p Constraints<'p>,
        remember: bool,
    ) -> Self {
        let lead = program.looks_back;
        let mut cells = vec![Cell { set: ByteSet::ALL, hint: None, must: false }; lead];
        cells.extend(constraints.canvas.iter().map(|set| Cell {
            set: *set,
            hint: None,
            must: true,
        }));
        let start = lead + constraints.start.min(constraints.canvas.len());
        let groups = program.groups as usize + 1;
        Writer {
            program,
            choices,
            ways,
            constraints,
            frozen: false,
            remember: remember.then(HashSet::new),
            steps: if remember { constraints.steps } else { constraints.steps / 8 },
            lead,
            cells,
            counters: vec![(0, 0); program.counters],
            captures: vec![None; groups],
            opened: vec![0; groups],
            frames: Vec::new(),
            looks: Vec::new(),
            begin: constraints.from_beginning.then_some(lead),
            end: None,
            keep: None,
            nots: Vec::new(),
            links: Vec::new(),
            prolongs: (0, ByteSet::NONE),
            held_at: Vec::new(),
            trail: Vec::new(),
            choice_points: Vec::new(),
            now: State { at: 0, pos: start, held: 0, partial: 0, held_end: lead },
        }
    }

    fn run(&mut self) -> Option<Sampled> {
        let start = self.now.pos;
        self.skip_empty_holds();
        let mut option = 0;
        loop {
            match self.step(option) {
                Step::On => option = 0,
                Step::Done => match self.finish(start) {
                    Some(sampled) => return Some(sampled),
                    None => option = self.back()?,
                },
                Step::Failed => option = self.back()?,
            }
        }
    }

    /// Whether the instructions from `at` match the text from `pos` on, up to `end` if it is given.
    fn matches(&mut self, at: Place, pos: usize, end: Option<usize>) -> bool {
        self.now = State { at, pos, held: 0, partial: 0, held_end: 0 };
        let mut option = 0;
        loop {
            match self.step(option) {
                Step::On => option = 0,
                Step::Done if end.is_none_or(|end| end == self.now.pos) => return true,
                Step::Done | Step::Failed => match self.back() {
                    Some(next) => option = next,
                    None => return false,
                },
            }
        }
    }

    /// Backtracks to the last choice.
    fn back(&mut self) -> Option<u32> {
        let choice = self.choice_points.pop()?;
        while self.trail.len() > choice.trail {
            let Some(undo) = self.trail.pop() else { break };
            self.undo(undo);
        }
        self.cells.truncate(choice.cells);
        self.now = choice.state;
        Some(choice.option)
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Cell(at, cell) => self.cells[at] = cell,
            Undo::Counter(at, value) => self.counters[at] = value,
            Undo::Capture(at, value) => self.captures[at] = value,
            Undo::Opened(at, value) => self.opened[at] = value,
            Undo::PushedFrame => drop(self.frames.pop()),
            Undo::PoppedFrame(frame) => self.frames.push(*frame),
            Undo::PushedLook => drop(self.looks.pop()),
            Undo::PoppedLook(pos) => self.looks.push(pos),
            Undo::Begin(value) => self.begin = value,
            Undo::End(value) => self.end = value,
            Undo::Keep(value) => self.keep = value,
            Undo::Not => drop(self.nots.pop()),
            Undo::Link => drop(self.links.pop()),
            Undo::Prolongs(value) => self.prolongs = value,
            Undo::HeldAt => drop(self.held_at.pop()),
        }
    }

    /// Records an alternative to try if the rest fails.
    fn or_else(&mut self, option: u32) {
        self.choice_points.push(Choice {
            state: self.now,
            option,
            trail: self.trail.len(),
            cells: self.cells.len(),
        });
    }

    fn step(&mut self, option: u32) -> Step {
        if self.steps == 0 {
            self.choice_points.clear();
            return Step::Failed;
        }
        self.steps -= 1;
        let program = self.program;
        let Some(instruction) = program.code.get(self.now.at) else { return Step::Failed };
        let next = self.now.at + 1;
        let held = match instruction {
            Instruction::Set(set, hint) => self.take(*set, *hint, option),
            Instruction::Split { id, ways, shortest } => {
                return self.split(*id, ways, *shortest, option);
            }
            Instruction::Jump(place) => {
                self.now.at = *place;
                return Step::On;
            }
            Instruction::LoopStart(counter) => {
                self.set_counter(*counter, (0, self.now.pos));
                true
            }
            Instruction::LoopTest { counter, min, max, exit, class, kind } => {
                return self.test(*counter, *min, *max, *exit, *class, *kind, option);
            }
            Instruction::LoopNext { counter, test } => {
                let (count, began) = self.counters[*counter];
                let Instruction::LoopTest { min, max, .. } = &program.code[*test] else {
                    return Step::Failed;
                };
                // An empty iteration is useless once the minimum is reached.
                if count >= *min && self.now.pos == began {
                    return Step::Failed;
                }
                // If there is no maximum, all iterations above the minimum are equivalent.
                let count = if max.is_none() { (count + 1).min(*min) } else { count + 1 };
                self.set_counter(*counter, (count, began));
                self.now.at = *test;
                return Step::On;
            }
            Instruction::Open(group) => {
                let group = *group as usize;
                self.trail.push(Undo::Opened(group, self.opened[group]));
                self.opened[group] = self.now.pos;
                true
            }
            Instruction::Close(group) => {
                let group = *group as usize;
                self.trail.push(Undo::Capture(group, self.captures[group]));
                self.captures[group] = Some((self.opened[group], self.now.pos));
                true
            }
            Instruction::Took(group, length) => {
                self.captures[*group as usize].is_some_and(|(from, to)| to - from == *length)
            }
            Instruction::Return(group) => {
                if self.frames.last().is_some_and(|frame| frame.group == *group) {
                    return self.return_from_call();
                }
                true
            }
            Instruction::Call { group, entry } => {
                if self.frames.len() >= MAX_DEPTH {
                    return Step::Failed;
                }
                self.frames.push(Frame {
                    group: *group,
                    back: next,
                    counters: self.counters.clone(),
                    captures: self.captures.clone(),
                });
                self.trail.push(Undo::PushedFrame);
                self.now.at = *entry;
                return Step::On;
            }
            Instruction::Assert(assertion) => self.assert(*assertion, option),
            Instruction::NextIs { set, or_none } => self.next_is(self.now.pos, *set, *or_none),
            Instruction::PreviousIs { set, or_none } => self.previous_is(*set, *or_none),
            Instruction::Lookahead => {
                self.looks.push(self.now.pos);
                self.trail.push(Undo::PushedLook);
                true
            }
            Instruction::Lookbehind { least, most } => {
                if least + (option as usize) < *most {
                    self.or_else(option + 1);
                }
                let length = least + option as usize;
                let Some(pos) = self.now.pos.checked_sub(length) else { return Step::Failed };
                self.looks.push(self.now.pos);
                self.trail.push(Undo::PushedLook);
                self.now.pos = pos;
                true
            }
            Instruction::LookDone { is_lookbehind } => {
                let Some(pos) = self.looks.pop() else { return Step::Failed };
                self.trail.push(Undo::PoppedLook(pos));
                let held = !is_lookbehind || self.now.pos == pos;
                self.now.pos = pos;
                held
            }
            Instruction::NegativeLookahead { next } => {
                self.not(None);
                self.now.at = *next;
                return Step::On;
            }
            Instruction::NegativeLookbehind { least, most, next } => {
                self.not(Some((*least, *most)));
                self.now.at = *next;
                return Step::On;
            }
            Instruction::NotDone => return Step::Done,
            Instruction::Back { groups, caseless } => self.repeat_group(groups, *caseless),
            Instruction::If { groups, no } => {
                if !groups
                    .iter()
                    .any(|group| self.captures.get(*group as usize).copied().flatten().is_some())
                {
                    self.now.at = *no;
                    return Step::On;
                }
                true
            }
            Instruction::IfCalled { no } => {
                if self.frames.is_empty() {
                    self.now.at = *no;
                    return Step::On;
                }
                true
            }
            Instruction::Keep => {
                self.trail.push(Undo::Keep(self.keep));
                self.keep = Some(self.now.pos);
                true
            }
            Instruction::Fail => false,
            Instruction::Accept => return Step::Done,
        };
        if !held {
            return Step::Failed;
        }
        self.now.at = next;
        Step::On
    }

    fn return_from_call(&mut self) -> Step {
        let Some(frame) = self.frames.pop() else { return Step::Failed };
        for counter in 0..self.counters.len() {
            self.set_counter(counter, frame.counters[counter]);
        }
        for group in 0..self.captures.len() {
            self.trail.push(Undo::Capture(group, self.captures[group]));
            self.captures[group] = frame.captures[group];
        }
        self.now.at = frame.back;
        self.trail.push(Undo::PoppedFrame(Box::new(frame)));
        Step::On
    }

    fn not(&mut self, lookbehind: Option<(usize, usize)>) {
        // A negative lookaround nested in another is ignored.
        if !self.frozen {
            self.nots.push(Not { at: self.now.at + 1, pos: self.now.pos, lookbehind });
            self.trail.push(Undo::Not);
        }
    }

    fn set_counter(&mut self, counter: usize, value: (u32, usize)) {
        self.trail.push(Undo::Counter(counter, self.counters[counter]));
        self.counters[counter] = value;
    }

    fn split(&mut self, id: usize, ways: &[Place], shortest: usize, option: u32) -> Step {
        if option == 0 && self.was_here() {
            return Step::Failed;
        }
        let option = option as usize;
        if option + 1 < ways.len() {
            self.or_else(option as u32 + 1);
        }
        let first = match self.ways.get(id) {
            Some(way) => *way as usize % ways.len(),
            None if self.choices.varied => {
                (self.choices.draw((id as u64) << 32 | self.now.pos as u64) % ways.len() as u64)
                    as usize
            }
            None => shortest,
        };
        // Try the preferred one first, then the others in order.
        let way = match option {
            0 => first,
            option if option <= first => option - 1,
            option => option,
        };
        self.now.at = ways[way];
        Step::On
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one instruction")]
    fn test(
        &mut self,
        counter: usize,
        min: u32,
        max: Option<u32>,
        exit: Place,
        class: Option<ByteSet>,
        kind: RepeatKind,
        option: u32,
    ) -> Step {
        let (count, _) = self.counters[counter];
        let around = self.now.at + 1;
        if count < min {
            self.set_counter(counter, (count, self.now.pos));
            self.now.at = around;
            return Step::On;
        }
        let more = max.is_none_or(|max| count < max) && self.may_go_on();
        let wanted = more && self.should_go_on(counter, class);
        if option == 0 && more {
            if self.was_here() {
                return Step::Failed;
            }
            self.or_else(1);
        }
        if more && wanted == (option == 0) {
            self.set_counter(counter, (count, self.now.pos));
            self.now.at = around;
            return Step::On;
        }
        if let Some(class) = class
            && max.is_none_or(|max| count < max)
        {
            if kind == RepeatKind::Possessive && !self.next_is(self.now.pos, class.not(), true) {
                return Step::Failed;
            }
            if kind == RepeatKind::Greedy && !self.frozen {
                let (at, set) = self.prolongs;
                self.trail.push(Undo::Prolongs(self.prolongs));
                // Loops that end at the same position combine. Loops that ended earlier no longer
                // matter.
                self.prolongs =
                    (self.now.pos, if at == self.now.pos { set.or(class) } else { class });
            }
        }
        self.set_counter(counter, (0, 0));
        self.now.at = exit;
        Step::On
    }

    /// Whether iterations above the minimum can be useful: to place required strings, to cover the
    /// canvas, or to reach the minimum length.
    fn may_go_on(&self) -> bool {
        let length = self.now.pos - self.lead;
        self.frozen
            || self.now.partial > 0
            || self.now.held < self.constraints.holds.len()
            || length < self.constraints.canvas.len()
            || length < self.constraints.least
            || self.choices.varied
            || self.cells.get(self.now.pos).is_some_and(|cell| cell.must)
    }

    /// Whether another iteration is preferred over leaving the loop.
    fn should_go_on(&self, counter: usize, class: Option<ByteSet>) -> bool {
        if self.frozen || self.now.partial > 0 {
            return false;
        }
        let length = self.now.pos - self.lead;
        if length < self.constraints.least {
            return class.is_some();
        }
        self.choices.varied
            && class.is_some()
            && self.constraints.holds.is_empty()
            && self
                .choices
                .draw((counter as u64) << 40 | (1 << 39) | self.now.pos as u64)
                .is_multiple_of(3)
    }

    /// Whether this state has failed before or is being tried.
    fn was_here(&mut self) -> bool {
        let Some(remember) = &mut self.remember else { return false };
        let mut hash = 0_u64;
        let mut mix = |value: usize| {
            hash = (hash ^ value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        };
        mix(self.now.at);
        mix(self.now.pos);
        mix(self.now.held);
        mix(self.now.partial);
        mix(self.now.held_end);
        mix(self.frames.len());
        self.frames.iter().for_each(|frame| mix(frame.back));
        mix(self.looks.len());
        self.counters.iter().for_each(|(count, _)| mix(*count as usize));
        !remember.insert(hash)
    }

    /// Consumes an octet in `set`.
    fn take(&mut self, set: ByteSet, hint: Option<u8>, option: u32) -> bool {
        let (mut set, mut hint) = (set, hint);
        if !self.frozen && self.looks.is_empty() {
            let holds = self.constraints.holds;
            if self.now.partial > 0 {
                let held = &holds[self.now.held];
                let byte = held.bytes[self.now.partial];
                set = set.and(ByteSet::letter(byte, held.nocase));
                hint = Some(byte);
                self.now.partial += 1;
            } else if let Some(held) = holds.get(self.now.held)
                && option == 0
                && self.fits_gap(held)
                && !set.and(ByteSet::letter(held.bytes[0], held.nocase)).is_empty()
            {
                self.or_else(1);
                set = set.and(ByteSet::letter(held.bytes[0], held.nocase));
                hint = Some(held.bytes[0]);
                self.held_at.push(self.now.pos);
                self.trail.push(Undo::HeldAt);
                self.now.partial = 1;
            }
            if holds.get(self.now.held).is_some_and(|held| self.now.partial == held.bytes.len()) {
                self.now.held += 1;
                self.now.partial = 0;
                self.now.held_end = self.now.pos + 1;
                self.skip_empty_holds();
            }
        }
        if !self.put(self.now.pos, set, hint) {
            return false;
        }
        self.now.pos += 1;
        true
    }

    fn skip_empty_holds(&mut self) {
        while self.constraints.holds.get(self.now.held).is_some_and(|held| held.bytes.is_empty()) {
            self.held_at.push(self.now.pos);
            self.trail.push(Undo::HeldAt);
            self.now.held += 1;
        }
    }

    fn fits_gap(&self, held: &Held<'_>) -> bool {
        let gap = self.now.pos.wrapping_sub(self.now.held_end);
        held.gap.is_none_or(|(least, most)| (least..=most).contains(&gap))
    }

    /// Requires an octet in `set` at `pos`.
    fn put(&mut self, pos: usize, set: ByteSet, hint: Option<u8>) -> bool {
        if self.begin.is_some_and(|begin| pos < begin) || self.end.is_some_and(|end| pos >= end) {
            return false;
        }
        if let Some(cell) = self.cells.get(pos) {
            let old = *cell;
            if self.frozen && !old.must {
                return false;
            }
            let alphabet = if old.must { ByteSet::ALL } else { self.constraints.alphabet };
            let set = old.set.and(set).and(alphabet);
            if set.is_empty() || !old.must && !self.has_room(pos) {
                return false;
            }
            if !self.frozen && (set != old.set || !old.must || old.hint.is_none() && hint.is_some())
            {
                self.trail.push(Undo::Cell(pos, old));
                self.cells[pos] =
                    Cell { set, hint: old.hint.filter(|hint| set.has(*hint)).or(hint), must: true };
            }
            return true;
        }
        let set = set.and(self.constraints.alphabet);
        if self.frozen || pos > self.cells.len() || set.is_empty() || !self.has_room(pos) {
            return false;
        }
        self.cells.push(Cell { set, hint, must: true });
        true
    }

    fn has_room(&self, pos: usize) -> bool {
        pos < self.lead || pos - self.lead < self.constraints.most.min(MAX_LEN)
    }

    /// Constrains the octet at `pos` to `set`. The octet must exist, unless `or_none`.
    fn next_is(&mut self, pos: usize, set: ByteSet, or_none: bool) -> bool {
        if !or_none {
            return self.put(pos, set, None);
        }
        if self.end.is_some_and(|end| pos >= end) {
            return true;
        }
        let Some(cell) = self.cells.get(pos).copied() else {
            if self.frozen {
                return true;
            }
            if set.is_empty() {
                return self.end_at(pos);
            }
            if pos == self.cells.len() {
                self.cells.push(Cell { set, hint: None, must: false });
            }
            return true;
        };
        let narrowed = cell.set.and(set);
        if narrowed.is_empty() {
            return !cell.must && (self.frozen || self.end_at(pos));
        }
        if !self.frozen {
            self.trail.push(Undo::Cell(pos, cell));
            self.cells[pos].set = narrowed;
        }
        true
    }

    fn previous_is(&mut self, set: ByteSet, or_none: bool) -> bool {
        let pos = self.now.pos;
        if pos == 0 || self.begin == Some(pos) {
            return or_none;
        }
        if !or_none {
            return self.put(pos - 1, set, None);
        }
        let cell = self.cells[pos - 1];
        let narrowed = cell.set.and(set);
        if narrowed.is_empty() {
            return !cell.must && (self.frozen || self.begin_at(pos));
        }
        if !self.frozen {
            self.trail.push(Undo::Cell(pos - 1, cell));
            self.cells[pos - 1].set = narrowed;
        }
        true
    }

    /// Requires the subject to start at `pos`.
    fn begin_at(&mut self, pos: usize) -> bool {
        if let Some(begin) = self.begin {
            return begin == pos;
        }
        if self.cells[..pos.min(self.cells.len())].iter().any(|cell| cell.must) {
            return false;
        }
        if !self.frozen {
            self.trail.push(Undo::Begin(self.begin));
            self.begin = Some(pos);
        }
        true
    }

    /// Requires the subject to end at `pos`.
    fn end_at(&mut self, pos: usize) -> bool {
        if let Some(end) = self.end {
            return end == pos;
        }
        if self.cells.iter().skip(pos).any(|cell| cell.must) {
            return false;
        }
        if !self.frozen {
            self.trail.push(Undo::End(self.end));
            self.end = Some(pos);
        }
        true
    }

    fn assert(&mut self, assertion: Assertion, option: u32) -> bool {
        let pos = self.now.pos;
        match assertion {
            Assertion::SubjectStart => self.begin_at(pos),
            Assertion::LineStart => self.previous_is(NEWLINE, true),
            Assertion::SubjectEnd => self.end_at(pos),
            Assertion::LineEnd => self.next_is(pos, NEWLINE, true),
            Assertion::SubjectEndOrLastLine => {
                if option == 0 {
                    self.or_else(1);
                    return self.end_at(pos);
                }
                self.put(pos, NEWLINE, None) && self.end_at(pos + 1)
            }
            Assertion::WordEdge | Assertion::NoWordEdge => {
                if option == 0 {
                    self.or_else(1);
                }
                let word_before = option == 1;
                let word_after = word_before != (assertion == Assertion::WordEdge);
                let side = |word: bool| if word { (WORD, false) } else { (WORD.not(), true) };
                let ((before, before_none), (after, after_none)) =
                    (side(word_before), side(word_after));
                self.previous_is(before, before_none) && self.next_is(pos, after, after_none)
            }
        }
    }

    fn repeat_group(&mut self, groups: &[u32], caseless: bool) -> bool {
        let captured =
            groups.iter().find_map(|group| self.captures.get(*group as usize).copied().flatten());
        let Some((from, to)) = captured else { return false };
        for earlier in from..to {
            let cell = self.cells[earlier];
            let set = if caseless { cell.set.caseless() } else { cell.set };
            let pos = self.now.pos;
            // As with any other octet, a required string may extend across the back-reference. If
            // it does, its octets are required here, too.
            let option = u32::from(self.now.partial == 0);
            if !self.take(set, cell.hint, option) {
                return false;
            }
            if !self.frozen && pos != earlier {
                self.links.push((pos, earlier, caseless));
                self.trail.push(Undo::Link);
            }
        }
        true
    }

    /// The text, if all deferred conditions hold.
    fn finish(&mut self, start: usize) -> Option<Sampled> {
        let match_end = self.now.pos;
        let match_start = self.keep.unwrap_or(start);
        // A required string may extend beyond the match.
        let mut after = match_end;
        if self.now.partial > 0 {
            let held = &self.constraints.holds[self.now.held];
            for byte in &held.bytes[self.now.partial..] {
                if !self.put(after, ByteSet::letter(*byte, held.nocase), Some(*byte)) {
                    return None;
                }
                after += 1;
            }
            self.now.held += 1;
        }
        self.skip_empty_holds();
        if self.now.held < self.constraints.holds.len() {
            return None;
        }
        let first = self
            .cells
            .iter()
            .position(|cell| cell.must)
            .unwrap_or(match_start)
            .min(match_start)
            .min(start);
        let last =
            self.cells.iter().rposition(|cell| cell.must).map_or(0, |at| at + 1).max(match_end);
        if !self.constraints.canvas.is_empty() && first < self.lead
            || last - first < self.constraints.least
        {
            return None;
        }
        if last - first > self.constraints.most {
            return None;
        }
        let begin = if self.constraints.canvas.is_empty() { first } else { self.lead };
        let sets = self.linked_sets()?;
        let bytes = self.fill(&sets, begin, last)?;
        let whole =
            |(from, to): (usize, usize)| from.saturating_sub(begin)..to.saturating_sub(begin);
        let mut captures: Vec<Option<Range<usize>>> =
            self.captures.iter().map(|range| range.map(whole)).collect();
        captures[0] = Some(whole((match_start.min(match_end), match_end)));
        let same = |at: usize| {
            self.links
                .iter()
                .find(|(later, _, _)| *later == at)
                .and_then(|(_, earlier, _)| earlier.checked_sub(begin))
        };
        let text = (begin..last)
            .map(|at| Slot { allowed: sets[at], preferred: bytes[at], same_as: same(at) })
            .collect();
        let edge = |cell: Option<&Cell>| cell.map_or(ByteSet::ALL, |cell| cell.set);
        let holds = self.constraints.holds;
        Some(Sampled {
            text,
            matched: whole((match_start.min(match_end), match_end)),
            before: if self.begin == Some(begin) {
                ByteSet::NONE
            } else {
                edge(begin.checked_sub(1).and_then(|at| self.cells.get(at)))
            },
            after: if self.end == Some(last) { ByteSet::NONE } else { edge(self.cells.get(last)) },
            prolongs: if last == match_end && self.prolongs.0 == last {
                self.prolongs.1
            } else {
                ByteSet::NONE
            },
            captures,
            holds: self
                .held_at
                .iter()
                .zip(holds)
                .map(|(at, held)| whole((*at, at + held.bytes.len())))
                .collect(),
        })
    }

    /// The sets of all octets, with those linked by back-references made equal.
    fn linked_sets(&self) -> Option<Vec<ByteSet>> {
        let mut sets: Vec<ByteSet> = self.cells.iter().map(|cell| cell.set).collect();
        // Links go from later to earlier octets, so two passes propagate the sets in both
        // directions.
        for (later, earlier, caseless) in self.links.iter().rev().chain(&self.links) {
            let (a, b) = (sets[*later], sets[*earlier]);
            let both = a.and(b);
            if both.is_empty() && *caseless && a.caseless().and(b) != ByteSet::NONE {
                continue;
            }
            sets[*later] = both;
            sets[*earlier] = both;
        }
        let unlinked = self
            .links
            .iter()
            .all(|(later, earlier, _)| !sets[*later].is_empty() && !sets[*earlier].is_empty());
        unlinked.then_some(sets)
    }

    /// Chooses an octet of each set such that no forbidden string occurs.
    fn fill(&mut self, sets: &[ByteSet], begin: usize, end: usize) -> Option<Vec<u8>> {
        for filling in 0..FILLINGS {
            let mut bytes: Vec<u8> = (0..sets.len())
                .map(|at| {
                    let hint = self.cells[at].hint.filter(|_| filling < FILLINGS / 2);
                    self.choose(sets[at], hint, filling << 32 | at as u64)
                })
                .collect();
            for (later, earlier, _) in &self.links {
                if sets[*later].has(bytes[*earlier]) {
                    bytes[*later] = bytes[*earlier];
                }
            }
            if self.avoids(&bytes[begin..end]) && self.refuses(&bytes) {
                return Some(bytes);
            }
            if self.steps == 0 {
                return None;
            }
        }
        None
    }

    fn choose(&self, set: ByteSet, hint: Option<u8>, what: u64) -> u8 {
        const PLAINEST: [ByteSet; 7] = [
            ByteSet::range(b'a', b'z'),
            ByteSet::range(b'0', b'9'),
            ByteSet::range(b'A', b'Z'),
            ByteSet::from_bytes(b"-_. "),
            ByteSet::range(33, 126),
            ByteSet::range(128, 255),
            ByteSet::range(1, 127),
        ];
        if let Some(hint) = hint.filter(|hint| set.has(*hint)) {
            return hint;
        }
        if let Some(single) = set.single() {
            return single;
        }
        let preferred = set.and(self.constraints.preferred);
        let set = if preferred.is_empty() { set } else { preferred };
        // Mix letters and digits, because the text may have to be neither all letters nor all
        // digits.
        let mixed = set.and(WORD);
        let plain =
            PLAINEST.iter().map(|plain| plain.and(set)).find(|set| !set.is_empty()).unwrap_or(set);
        let plain = if what >> 32 > FILLINGS / 4 && !mixed.is_empty() { mixed } else { plain };
        let count = plain.len().max(1) as u64;
        plain.iter().nth((self.choices.draw(what) % count) as usize).unwrap_or(0)
    }

    fn avoids(&self, text: &[u8]) -> bool {
        self.constraints.avoid.iter().filter(|(bytes, _)| !bytes.is_empty()).all(
            |(bytes, nocase)| {
                !text.windows(bytes.len()).any(|window| {
                    if *nocase { window.eq_ignore_ascii_case(bytes) } else { window == *bytes }
                })
            },
        )
    }

    /// Whether no negative lookaround matches.
    fn refuses(&mut self, bytes: &[u8]) -> bool {
        if self.nots.is_empty() {
            return true;
        }
        let cells: Vec<Cell> = self
            .cells
            .iter()
            .zip(bytes)
            .map(|(cell, byte)| Cell { set: ByteSet::of(*byte), hint: None, must: cell.must })
            .collect();
        let mut matcher = Writer::new(self.program, self.choices, &[], self.constraints, true);
        matcher.frozen = true;
        matcher.cells = cells;
        matcher.begin = self.begin;
        matcher.end = self.end;
        matcher.steps = self.steps;
        let mut refused = true;
        for not in &self.nots {
            let (starts, end) = match not.lookbehind {
                None => (not.pos..=not.pos, None),
                Some((least, most)) => {
                    (not.pos.saturating_sub(most)..=not.pos.saturating_sub(least), Some(not.pos))
                }
            };
            for start in starts {
                matcher.trail.clear();
                matcher.choice_points.clear();
                matcher.looks.clear();
                matcher.frames.clear();
                matcher.captures.clone_from(&self.captures);
                matcher.remember = Some(HashSet::new());
                if matcher.matches(not.at, start, end) {
                    refused = false;
                }
            }
        }
        self.steps = matcher.steps;
        refused
    }
}

enum Step {
    On,
    Done,
    Failed,
}
