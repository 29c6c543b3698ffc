//! Aligned columns, for commands that print once.

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// Lines with a heading. Replaces control characters in cells.
pub fn table(columns: &[(&str, Side)], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(&head)
        .chain(rows)
        .map(|row| row.iter().map(|cell| cell_text(cell)).collect())
        .collect();
    let width = |i: usize| {
        rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row
            .iter()
            .zip(columns)
            .zip(&widths)
            .map(|((cell, (_, side)), &width)| padded(cell, width, *side));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// Maximum width of a column, wider than any screen. Without it, a name of 70,000 characters would
/// make every row that wide.
const MOST_COLUMNS: usize = 256;

/// Text of a cell. If it is too long, only its start and end.
pub(super) fn cell_text(text: &str) -> String {
    let chars = text.chars().count();
    if chars <= MOST_COLUMNS {
        return printable(text);
    }
    let half = MOST_COLUMNS / 2;
    let (begin, end) = (text.chars().take(half), text.chars().skip(chars - half + 1));
    printable(&begin.chain(['…']).chain(end).collect::<String>())
}

/// Pads `cell` to `width`. Format strings cannot, as they limit the width to 65,535.
pub(super) fn padded(cell: &str, width: usize, side: Side) -> String {
    let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
    match side {
        Side::Left => cell.to_owned() + &pad,
        Side::Right => pad + cell,
    }
}

/// Use it for names that are read from files.
pub use super::table::printable;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_on_their_side_and_nothing_trails() {
        let rows = [
            vec!["a\n".into(), "1".into(), String::new()],
            vec!["long".into(), "10000".into(), "x".into()],
        ];
        let text = table(&[("N", Side::Left), ("COUNT", Side::Right), ("", Side::Left)], &rows);
        assert_eq!(text, "N     COUNT\na␊        1\nlong  10000  x\n");
    }

    #[test]
    fn a_cell_longer_than_any_screen_is_cut_in_its_midst() {
        let rows = [
            vec![format!("begin{}end", "é".repeat(70_000)), "1".into()],
            vec!["b".into(), "2".into()],
        ];
        let text = table(&[("NAME", Side::Left), ("N", Side::Right)], &rows);
        assert!(text.lines().all(|line| line.chars().count() == MOST_COLUMNS + 3), "{text}");
        assert!(
            text.contains("begin") && text.contains("é…é") && text.contains("end  1"),
            "{text}"
        );
    }
}
