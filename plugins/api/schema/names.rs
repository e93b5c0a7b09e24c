//! The name that was meant.

/// Longest name that is compared: longer ones are no misspelling of a key.
const MAX_NAME: usize = 64;

/// The closest of several names, when one is close enough to be meant.
pub fn closest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MAX_NAME {
        return None;
    }
    let far = name.chars().count() / 3 + 1;
    names
        .map(|known| (distance(name, known), known))
        .filter(|(d, _)| *d <= far)
        .min()
        .map(|(_, k)| k)
}

/// Edit distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names() {
        let names = ["node_listen", "router", "ssl"];
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(closest(name, names.into_iter()), expected, "{name}");
        };
        check("node_lisen", Some("node_listen"));
        check("routr", Some("router"));
        check("zzz", None);
        check("", None);
        check(&"router".repeat(1000), None);
    }
}
