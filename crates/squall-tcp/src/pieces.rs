//! The oldest pieces of flows with data to send. Most open flows have none, so a piece is not in
//! the flow's record.

use crate::Piece;

/// A piece, and where it begins in the stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Placed {
    pub at: u32,
    pub piece: Piece,
}

impl Placed {
    /// The number after the last octet.
    #[inline]
    pub fn end(&self) -> u32 {
        self.at.wrapping_add(self.piece.len)
    }
}

/// The row of flows without a piece. Its piece has no octets.
pub(crate) const NO_PIECE: u32 = 0;

pub(crate) struct Pieces {
    rows: Vec<Placed>,
    /// Head of the list of free rows, whose `at` is the next one; [`NO_PIECE`]: none is free.
    free: u32,
}

impl Pieces {
    pub fn new() -> Self {
        Self { rows: vec![Placed::default()], free: NO_PIECE }
    }

    pub fn memory(&self) -> usize {
        self.rows.capacity() * size_of::<Placed>()
    }

    /// Stores a piece and returns its row.
    #[inline(always)]
    pub fn take(&mut self, piece: Placed) -> u32 {
        let row = self.free;
        if row == NO_PIECE {
            self.rows.push(piece);
            return self.rows.len() as u32 - 1;
        }
        let place = &mut self.rows[row as usize];
        self.free = place.at;
        *place = piece;
        row
    }

    /// Frees a row other than [`NO_PIECE`].
    #[inline]
    pub fn give(&mut self, row: u32) {
        debug_assert!(row != NO_PIECE, "the row of flows without a piece is not freed");
        self.rows[row as usize].at = std::mem::replace(&mut self.free, row);
    }

    #[inline]
    pub fn get(&self, row: u32) -> &Placed {
        &self.rows[row as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, row: u32) -> &mut Placed {
        &mut self.rows[row as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_used_again_and_the_first_one_never() {
        let mut pieces = Pieces::new();
        let placed = |at| Placed { at, piece: Piece { message: 1, nth: 2, len: 10 } };
        let rows = [5, 6, 7].map(|at| pieces.take(placed(at)));
        pieces.give(rows[0]);
        pieces.give(rows[2]);
        let again = [8, 9].map(|at| pieces.take(placed(at)));
        assert_eq!(again, [rows[2], rows[0]]);
        let ends = [rows[0], rows[1], rows[2], NO_PIECE].map(|row| pieces.get(row).end());
        assert_eq!((ends, pieces.rows.len()), ([19, 16, 18, 0], 4));
    }
}
