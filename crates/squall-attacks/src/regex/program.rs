//! Compiles a syntax tree to instructions, which `sample.rs` executes to generate a text.

use super::ByteSet;
use super::syntax::{Assertion, Condition, Node, RepeatKind, Syntax};

pub(super) type Place = usize;

#[derive(Clone, Debug)]
pub(super) enum Instruction {
    /// An octet in the set, and the preferred one.
    Set(ByteSet, Option<u8>),
    /// Several alternatives. `id` identifies the split for branches; `shortest` is the index of the
    /// shortest alternative.
    Split {
        id: usize,
        ways: Vec<Place>,
        shortest: usize,
    },
    Jump(Place),
    /// Reset the counter of a loop.
    LoopStart(usize),
    /// Iterate or leave. `class` is the loop's body if that is a single octet.
    LoopTest {
        counter: usize,
        min: u32,
        max: Option<u32>,
        exit: Place,
        class: Option<ByteSet>,
        kind: RepeatKind,
    },
    /// Count an iteration and jump to the test.
    LoopNext {
        counter: usize,
        test: Place,
    },
    Open(u32),
    Close(u32),
    /// Continue if the group has captured this number of octets.
    Took(u32, usize),
    /// Return from a subroutine call of the group.
    Return(u32),
    Call {
        group: u32,
        entry: Place,
    },
    Assert(Assertion),
    /// The next octet is in the set or, if `or_none`, there is none. Consumes nothing.
    NextIs {
        set: ByteSet,
        or_none: bool,
    },
    PreviousIs {
        set: ByteSet,
        or_none: bool,
    },
    /// The instructions up to `LookDone` are overlaid on the text that starts here.
    Lookahead,
    /// The instructions up to `LookDone` match a text that ends here. The fields bound its length.
    Lookbehind {
        least: usize,
        most: usize,
    },
    LookDone {
        is_lookbehind: bool,
    },
    /// The instructions up to `next` (which end with `NotDone`) must not match here.
    NegativeLookahead {
        next: Place,
    },
    NegativeLookbehind {
        least: usize,
        most: usize,
        next: Place,
    },
    NotDone,
    Back {
        groups: Vec<u32>,
        caseless: bool,
    },
    /// Continue if one of the groups has matched.
    If {
        groups: Vec<u32>,
        no: Place,
    },
    IfCalled {
        no: Place,
    },
    Keep,
    Fail,
    Accept,
}

pub(super) struct Program {
    pub code: Vec<Instruction>,
    pub counters: usize,
    pub groups: u32,
    /// Length of the longest lookbehind, in octets.
    pub looks_back: usize,
}

/// Maximum length to try for lookbehinds of variable length.
const MAX_LOOKBEHIND_LEN: usize = 255;

pub(super) fn compile(syntax: &Syntax) -> Program {
    let mut compiler = Compiler {
        program: Program { code: Vec::new(), counters: 0, groups: syntax.groups, looks_back: 1 },
        splits: 0,
        entries: vec![None; syntax.groups as usize + 1],
        calls: Vec::new(),
    };
    compiler.entries[0] = Some(0);
    compiler.node(&syntax.root);
    compiler.push(Instruction::Return(0));
    compiler.push(Instruction::Accept);
    let fail = compiler.push(Instruction::Fail);
    for at in std::mem::take(&mut compiler.calls) {
        if let Instruction::Call { group, entry } = &mut compiler.program.code[at] {
            *entry = compiler.entries.get(*group as usize).copied().flatten().unwrap_or(fail);
        }
    }
    compiler.program
}

struct Compiler {
    program: Program,
    splits: usize,
    /// Entry points of groups.
    entries: Vec<Option<Place>>,
    /// Calls to be linked.
    calls: Vec<Place>,
}

impl Compiler {
    fn push(&mut self, instruction: Instruction) -> Place {
        self.program.code.push(instruction);
        self.program.code.len() - 1
    }

    fn here(&self) -> Place {
        self.program.code.len()
    }

    fn node(&mut self, node: &Node) {
        match node {
            Node::Empty | Node::Named { .. } => {}
            Node::Set(set, hint) => {
                self.push(Instruction::Set(*set, *hint));
            }
            Node::Concat(nodes) => nodes.iter().for_each(|node| self.node(node)),
            Node::Alternate(ways) => self.alternate(ways),
            Node::Capture(group, node) => {
                let entry = self.push(Instruction::Open(*group));
                if let Some(slot) = self.entries.get_mut(*group as usize) {
                    slot.get_or_insert(entry);
                }
                self.node(node);
                self.push(Instruction::Close(*group));
                self.push(Instruction::Return(*group));
            }
            Node::CaptureOf(group, node, wanted) => {
                self.push(Instruction::Lookahead);
                for byte in wanted {
                    self.push(Instruction::Set(ByteSet::of(*byte), Some(*byte)));
                }
                self.push(Instruction::LookDone { is_lookbehind: false });
                self.push(Instruction::Open(*group));
                self.node(node);
                self.push(Instruction::Close(*group));
                self.push(Instruction::Took(*group, wanted.len()));
            }
            Node::Repeat { node, min, max, kind } => self.repeat(node, *min, *max, *kind),
            Node::Assert(assertion) => {
                self.push(Instruction::Assert(*assertion));
            }
            Node::Look { ahead, negative, node } => self.look(*ahead, *negative, node),
            Node::Atomic(node) => match possessive(node) {
                Some(node) => self.node(&node),
                None => self.node(node),
            },
            Node::Back { groups, caseless } => {
                self.push(Instruction::Back { groups: groups.clone(), caseless: *caseless });
            }
            Node::Call(group) => {
                let at = self.push(Instruction::Call { group: *group, entry: 0 });
                self.calls.push(at);
            }
            Node::Condition { condition, yes, no } => self.condition(condition, yes, no),
            Node::Keep => {
                self.push(Instruction::Keep);
            }
            Node::Fail => {
                self.push(Instruction::Fail);
            }
            Node::Accept => {
                self.push(Instruction::Accept);
            }
        }
    }

    fn alternate(&mut self, ways: &[Node]) {
        let id = self.splits;
        self.splits += 1;
        let split = self.push(Instruction::Fail);
        let mut begins = Vec::with_capacity(ways.len());
        let mut ends = Vec::with_capacity(ways.len());
        for way in ways {
            begins.push(self.here());
            self.node(way);
            ends.push(self.push(Instruction::Jump(0)));
        }
        let shortest = (0..ways.len()).min_by_key(|index| least_length(&ways[*index])).unwrap_or(0);
        let end = self.here();
        for at in ends {
            self.program.code[at] = Instruction::Jump(end);
        }
        self.program.code[split] = Instruction::Split { id, ways: begins, shortest };
    }

    fn repeat(&mut self, node: &Node, min: u32, max: Option<u32>, kind: RepeatKind) {
        if (min, max) == (1, Some(1)) {
            return self.node(node);
        }
        if max == Some(0) {
            // Jump over the code, which is only called.
            let jump = self.push(Instruction::Jump(0));
            self.node(node);
            self.program.code[jump] = Instruction::Jump(self.here());
            return;
        }
        let class = match node {
            Node::Set(set, _) => Some(*set),
            _ => None,
        };
        let counter = self.program.counters;
        self.program.counters += 1;
        self.push(Instruction::LoopStart(counter));
        let test = self.push(Instruction::Fail);
        self.node(node);
        self.push(Instruction::LoopNext { counter, test });
        let exit = self.here();
        self.program.code[test] = Instruction::LoopTest { counter, min, max, exit, class, kind };
    }

    fn look(&mut self, ahead: bool, negative: bool, node: &Node) {
        if let Some((set, or_none)) = single(node, ahead, negative) {
            // The complement also includes the end of the text.
            let (set, or_none) = if negative { (set.not(), !or_none) } else { (set, or_none) };
            self.push(if ahead {
                Instruction::NextIs { set, or_none }
            } else {
                Instruction::PreviousIs { set, or_none }
            });
            return;
        }
        let (least, most) = if ahead {
            (0, 0)
        } else {
            (least_length(node), most_length(node).unwrap_or(MAX_LOOKBEHIND_LEN))
        };
        let (least, most) = (least.min(MAX_LOOKBEHIND_LEN), most.min(MAX_LOOKBEHIND_LEN));
        self.program.looks_back = self.program.looks_back.max(most + 1);
        if negative {
            let head = self.push(Instruction::Fail);
            self.node(node);
            self.push(Instruction::NotDone);
            let next = self.here();
            self.program.code[head] = if ahead {
                Instruction::NegativeLookahead { next }
            } else {
                Instruction::NegativeLookbehind { least, most, next }
            };
        } else {
            self.push(if ahead {
                Instruction::Lookahead
            } else {
                Instruction::Lookbehind { least, most }
            });
            self.node(node);
            self.push(Instruction::LookDone { is_lookbehind: !ahead });
        }
    }

    fn condition(&mut self, condition: &Condition, yes: &Node, no: &Node) {
        let test = match condition {
            Condition::Always(true) => return self.node(yes),
            // The branch of `(DEFINE)` is only called, never entered.
            Condition::Always(false) | Condition::Name(..) => {
                let jump = self.push(Instruction::Jump(0));
                self.node(yes);
                self.program.code[jump] = Instruction::Jump(self.here());
                return self.node(no);
            }
            Condition::Groups(_) | Condition::Recursion => self.push(Instruction::Fail),
        };
        self.node(yes);
        let jump = self.push(Instruction::Jump(0));
        let otherwise = self.here();
        self.node(no);
        self.program.code[jump] = Instruction::Jump(self.here());
        self.program.code[test] = match condition {
            Condition::Groups(groups) => Instruction::If { groups: groups.clone(), no: otherwise },
            _ => Instruction::IfCalled { no: otherwise },
        };
    }
}

/// The octet that a lookaround tests, and whether the end of the text matches, too: (`ab`, true)
/// for `(?=[ab]|$)`.
fn single(node: &Node, ahead: bool, negative: bool) -> Option<(ByteSet, bool)> {
    match node {
        Node::Set(set, _) => Some((*set, false)),
        Node::Assert(Assertion::SubjectEnd) if ahead => Some((ByteSet::NONE, true)),
        Node::Assert(Assertion::LineEnd) if ahead => Some((ByteSet::of(b'\n'), true)),
        Node::Assert(Assertion::SubjectStart) if !ahead => Some((ByteSet::NONE, true)),
        Node::Assert(Assertion::LineStart) if !ahead => Some((ByteSet::of(b'\n'), true)),
        // This ignores that a line feed may precede the end, which is stricter than necessary.
        Node::Assert(Assertion::SubjectEndOrLastLine) if ahead => Some((ByteSet::NONE, true)),
        // A capture must be recorded, except within a negative lookaround.
        Node::Capture(_, node) if negative => single(node, ahead, negative),
        Node::Atomic(node) => single(node, ahead, negative),
        Node::Alternate(ways) => {
            ways.iter().try_fold((ByteSet::NONE, false), |(set, none), way| {
                let (more, or_none) = single(way, ahead, negative)?;
                Some((set.or(more), none || or_none))
            })
        }
        Node::Repeat { node, min: 1, .. } if matches!(**node, Node::Set(..)) => {
            single(node, ahead, negative)
        }
        _ => None,
    }
}

/// A copy of `node` whose last repetition is possessive, if it ends in one.
fn possessive(node: &Node) -> Option<Node> {
    match node {
        Node::Repeat { node, min, max, kind: RepeatKind::Greedy } => Some(Node::Repeat {
            node: node.clone(),
            min: *min,
            max: *max,
            kind: RepeatKind::Possessive,
        }),
        Node::Concat(nodes) => {
            let (last, before) = nodes.split_last()?;
            let mut nodes = before.to_vec();
            nodes.push(possessive(last)?);
            Some(Node::Concat(nodes))
        }
        _ => None,
    }
}

/// Minimum length, where calls of groups count as 0.
pub(super) fn least_length(node: &Node) -> usize {
    match node {
        Node::Set(..) => 1,
        Node::Concat(nodes) => nodes.iter().map(least_length).fold(0, usize::saturating_add),
        Node::Alternate(ways) => ways.iter().map(least_length).min().unwrap_or(0),
        Node::Capture(_, node) | Node::Atomic(node) => least_length(node),
        Node::Repeat { node, min, .. } => least_length(node).saturating_mul(*min as usize),
        Node::Condition { condition: Condition::Always(false), no, .. } => least_length(no),
        Node::Condition { yes, no, .. } => least_length(yes).min(least_length(no)),
        _ => 0,
    }
}

/// Maximum length. `None` if it is unbounded or unknown.
fn most_length(node: &Node) -> Option<usize> {
    match node {
        Node::Set(..) => Some(1),
        Node::Concat(nodes) => {
            nodes.iter().try_fold(0_usize, |sum, node| sum.checked_add(most_length(node)?))
        }
        Node::Alternate(ways) => {
            ways.iter().try_fold(0, |most, way| Some(most_length(way)?.max(most)))
        }
        Node::Capture(_, node) | Node::Atomic(node) => most_length(node),
        Node::Repeat { node, max, .. } => most_length(node)?.checked_mul((*max)? as usize),
        Node::Condition { yes, no, .. } => Some(most_length(yes)?.max(most_length(no)?)),
        Node::Back { .. } | Node::Call(_) => None,
        _ => Some(0),
    }
}

/// Number of texts that differ in the choice of alternatives and optional parts. Each part of a
/// repetition counts once.
pub(super) fn branches(node: &Node) -> u64 {
    match node {
        Node::Concat(nodes) => nodes.iter().map(branches).fold(1, u64::saturating_mul),
        Node::Alternate(ways) => ways.iter().map(branches).fold(0, u64::saturating_add),
        Node::Capture(_, node) | Node::Atomic(node) | Node::Look { negative: false, node, .. } => {
            branches(node)
        }
        Node::Repeat { max: Some(0), .. } => 1,
        Node::Repeat { node, .. } => branches(node),
        Node::Condition { yes, no, .. } => branches(yes).saturating_mul(branches(no)),
        _ => 1,
    }
}

/// For branch `nth`, the choice at each `Split`, in order of their ids.
pub(super) fn ways_of_branch(node: &Node, nth: u64, ways: &mut Vec<u32>) {
    match node {
        Node::Concat(nodes) => {
            let mut rest = nth;
            for node in nodes {
                let count = branches(node).max(1);
                ways_of_branch(node, rest % count, ways);
                rest /= count;
            }
        }
        Node::Alternate(all) => {
            let at = ways.len();
            ways.push(0);
            let mut rest = Some(nth);
            for (index, way) in all.iter().enumerate() {
                let count = branches(way);
                match rest {
                    Some(left) if left < count => {
                        ways[at] = index as u32;
                        ways_of_branch(way, left, ways);
                        rest = None;
                    }
                    _ => {
                        rest = rest.map(|left| left - count);
                        ways_of_branch(way, 0, ways);
                    }
                }
            }
        }
        Node::Capture(_, node) | Node::Repeat { node, .. } => ways_of_branch(node, nth, ways),
        Node::Atomic(node) => ways_of_branch(node, nth, ways),
        // A lookaround that tests one octet is compiled without a `Split`.
        Node::Look { ahead, negative, node } if single(node, *ahead, *negative).is_none() => {
            ways_of_branch(node, nth, ways)
        }
        Node::Condition { yes, no, .. } => {
            let count = branches(yes).max(1);
            ways_of_branch(yes, nth % count, ways);
            ways_of_branch(no, nth / count, ways);
        }
        _ => {}
    }
}
