//! Aligned columns for commands that print once.

/// Which side a column stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// Lines with a head; what holds control characters does not steer the terminal.
pub fn table(columns: &[(&str, Side)], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
    let rows: Vec<Vec<String>> =
        std::iter::once(&head).chain(rows).map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let width = |i: usize| rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(columns).zip(&widths).map(|((cell, (_, side)), &width)| match side {
            Side::Left => format!("{cell:width$}"),
            Side::Right => format!("{cell:>width$}"),
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// Names come from files.
pub use super::table::printable;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_on_their_side_and_nothing_trails() {
        let rows = [vec!["a\n".into(), "1".into(), String::new()], vec!["long".into(), "10000".into(), "x".into()]];
        let text = table(&[("N", Side::Left), ("COUNT", Side::Right), ("", Side::Left)], &rows);
        assert_eq!(text, "N     COUNT\na␊        1\nlong  10000  x\n");
    }
}
