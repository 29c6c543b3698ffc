//! Suggestions for misspelled names.

/// Returns `did you mean "rate"?`, or a list of all names.
pub fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    /// Maximum number of names to list: a profile may have thousands.
    const MAX_LISTED: usize = 40;
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(word, known.iter().copied()) {
        Some(name) => format!("did you mean {name:?}?"),
        None if known.is_empty() => "none is defined".into(),
        None if known.len() > MAX_LISTED => {
            format!(
                "expected one of {} and {} more",
                known[..MAX_LISTED].join(", "),
                known.len() - MAX_LISTED
            )
        }
        None => format!("expected one of {}", known.join(", ")),
    }
}

/// The known name with the fewest edits from `word`, ignoring case; `None` if none is similar
/// enough.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let letters = Letters::of(&lower);
    let most = 1 + lower.len() / 4;
    let begun = |k: &str| lower.len() >= 3 && k.starts_with(&lower);
    known
        .into_iter()
        // A cheap test that rejects most names, for lists of 100,000.
        .filter(|k| !k.is_ascii() || begun(k) || !letters.differ(k, most))
        .map(|k| (edit_distance(&lower, &k.to_lowercase()), k))
        // With a single letter, any other letter is one edit away, so an edit shows no similarity.
        .filter(|(d, k)| begun(k) || *d == 0 || *d <= most && k.len() > 1 && *d < k.len())
        .min()
        .map(|(_, name)| name)
}

/// Number of occurrences of each letter in an ASCII word.
struct Letters(Option<[i16; 128]>);

/// Maximum number of letters to compare: names are short.
const MAX_LETTERS: usize = 64;

impl Letters {
    fn of(lower: &str) -> Self {
        let mut counts = [0; 128];
        if !lower.is_ascii() || lower.len() > MAX_LETTERS {
            return Self(None);
        }
        lower.bytes().for_each(|letter| counts[usize::from(letter)] += 1);
        Self(Some(counts))
    }

    /// Whether the letters, in any order, require more than `most` edits. An edit changes the count
    /// of at most two letters.
    fn differ(&self, other: &str, most: usize) -> bool {
        let Some(mut counts) = self.0.filter(|_| other.len() <= MAX_LETTERS) else { return false };
        other.bytes().for_each(|letter| counts[usize::from(letter.to_ascii_lowercase())] -= 1);
        let changed: usize = counts.iter().map(|count| usize::from(count.unsigned_abs())).sum();
        changed > 2 * most
    }
}

/// Number of letters to insert, drop, replace or swap with their neighbor (optimal string
/// alignment), within the first 64 letters of each word.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) =
        (a.chars().take(MAX_LETTERS).collect(), b.chars().take(MAX_LETTERS).collect());
    let mut rows = [vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<_>>(), vec![0; b.len() + 1]];
    for i in 0..a.len() {
        rows[2][0] = i + 1;
        for j in 0..b.len() {
            let replace = rows[1][j] + usize::from(a[i] != b[j]);
            let mut best = replace.min(rows[1][j + 1] + 1).min(rows[2][j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                best = best.min(rows[0][j - 1] + 1);
            }
            rows[2][j + 1] = best;
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_and_all_where_none_is_near() {
        let known = ["rate", "mode", "start_delay"];
        assert_eq!(suggest("raet", known), r#"did you mean "rate"?"#);
        assert_eq!(suggest("startdelay", known), r#"did you mean "start_delay"?"#);
        assert_eq!(suggest("colour", known), "expected one of rate, mode, start_delay");
        assert_eq!(suggest("", known), "expected one of rate, mode, start_delay");
        assert_eq!(suggest("C", ["A", "B"]), "expected one of A, B");
        assert_eq!(suggest("a", ["A", "B"]), "did you mean \"A\"?");
        assert_eq!(suggest("sta", known), "did you mean \"start_delay\"?");
        assert!(suggest("C", std::iter::repeat_n("stream", 1000)).ends_with("stream and 960 more"));
    }

    #[test]
    fn distance_counts_inserts_drops_replacements_and_swaps() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "ab", 2),
            ("rate", "rate", 0),
            ("raet", "rate", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!((edit_distance(a, b), edit_distance(b, a)), (expected, expected), "{a} {b}");
        }
    }
}
