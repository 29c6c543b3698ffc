//! The order of the runs. Pure functions.

/// One run: indices into the lists of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub data: usize,
    pub write: usize,
    pub rate: usize,
    pub tool: usize,
}

/// Number of data sets, output locations, rates, tools and rounds.
#[derive(Clone, Copy, Debug)]
pub struct Design {
    pub data: usize,
    pub write: usize,
    pub rates: usize,
    pub tools: usize,
    pub rounds: usize,
}

impl Design {
    /// Turns in rounds of all cells. A machine that slows down then does so for every cell, and an
    /// interrupted comparison has some rounds of all cells instead of all rounds of some. Within a
    /// cell, the tools take turns. The first tool changes with each cell and round, because a run
    /// may affect caches and queues for the next one.
    pub fn turns(self) -> impl Iterator<Item = Turn> {
        (0..self.rounds).flat_map(move |round| {
            (0..self.cells()).flat_map(move |cell| {
                (0..self.tools).map(move |turn| Turn {
                    data: cell / self.rates / self.write,
                    write: cell / self.rates % self.write,
                    rate: cell % self.rates,
                    tool: (turn + cell + round) % self.tools,
                })
            })
        })
    }

    /// Index of a turn's cell and tool, in the order of the settings.
    pub fn step(self, turn: Turn) -> usize {
        ((turn.data * self.write + turn.write) * self.rates + turn.rate) * self.tools + turn.tool
    }

    fn cells(self) -> usize {
        self.data * self.write * self.rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESIGN: Design = Design { data: 2, write: 2, rates: 3, tools: 3, rounds: 3 };

    #[test]
    fn each_round_has_every_tool_in_every_cell_once() {
        let turns: Vec<Turn> = DESIGN.turns().collect();
        assert_eq!(turns.len(), 3 * 36);
        for round in turns.chunks(36) {
            let mut steps: Vec<usize> = round.iter().map(|turn| DESIGN.step(*turn)).collect();
            steps.sort_unstable();
            assert_eq!(steps, (0..36).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_tools_of_a_cell_run_one_after_the_other() {
        for group in DESIGN.turns().collect::<Vec<_>>().chunks(3) {
            let cells: Vec<usize> = group.iter().map(|turn| DESIGN.step(*turn) / 3).collect();
            assert_eq!(cells, [cells[0]; 3]);
        }
    }

    #[test]
    fn every_tool_is_first_as_often_as_the_others_in_each_cell() {
        let firsts: Vec<Turn> = DESIGN.turns().step_by(3).collect();
        for cell in 0..12 {
            let mut tools: Vec<usize> =
                firsts.iter().skip(cell).step_by(12).map(|turn| turn.tool).collect();
            tools.sort_unstable();
            assert_eq!(tools, [0, 1, 2], "cell {cell}");
        }
    }

    #[test]
    fn without_rates_there_are_no_turns() {
        assert_eq!(Design { rates: 0, ..DESIGN }.turns().count(), 0);
    }
}
