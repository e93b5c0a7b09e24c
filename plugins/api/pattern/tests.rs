use super::*;

#[track_caller]
fn check(pattern: &str, yes: &[&str], no: &[&str]) {
    check_flags(pattern, "", yes, no);
}

#[track_caller]
fn check_flags(pattern: &str, flags: &str, yes: &[&str], no: &[&str]) {
    let compiled = Pattern::with_flags(pattern, flags).unwrap_or_else(|e| panic!("{pattern}: {e}"));
    for text in yes {
        assert!(compiled.is_match(text), "{pattern} should match {text:?}");
    }
    for text in no {
        assert!(
            !compiled.is_match(text),
            "{pattern} should not match {text:?}"
        );
    }
}

#[test]
fn flags() {
    check("^AB", &["ABC"], &["abc", "xAB"]);
    check_flags("^AB", "ijo", &["abc"], &["xab"]);
    check_flags("a.b", "s", &["a\nb"], &[]);
    check_flags("a.b", "", &["axb"], &["a\nb"]);
    check_flags("^b$", "m", &["a\nb\nc"], &[]);
    check_flags("a b # comment", "x", &["ab"], &["a b"]);
    check_flags("[ #]", "x", &[" ", "#"], &["a"]);
    check("(?i)abc", &["ABC"], &[]);
    check("a(?i:b)", &["aB"], &["AB"]);
}

#[test]
fn class_escapes_are_ascii() {
    check(r"^\d+$", &["12"], &["\u{0661}", "a"]);
    check(r"^\w+$", &["a_9"], &["é"]);
    check(r"^\W$", &["-", "é"], &["a"]);
    check(r"^\s$", &[" ", "\t"], &["\u{a0}"]);
    check(r"^[\w.-]+$", &["a.b-c"], &["a/b"]);
    check(r"^[^\d]$", &["a"], &["1"]);
    check(r"^[\Da]$", &["x"], &["1"]);
    check(r"^\h\H\v?$", &["\ta", " a\n"], &["aa"]);
    check(r"a\Rb", &["a\r\nb", "a\nb"], &["a b"]);
    check(r"^\N$", &["a"], &["\n"]);
}

#[test]
fn spellings_of_pcre() {
    check(r"\<a\>", &["<a>"], &["a"]);
    check(r"^\/a\-b\_c$", &["/a-b_c"], &[]);
    check(r"\Qa.b*\E.c", &["a.b*xc"], &["aXb*xc"]);
    check("^[[a]$", &["[", "a"], &["b"]);
    check("^[]a]$", &["]", "a"], &["b"]);
    check("^[^]a]$", &["b"], &["]", "a"]);
    check("^[a&&b]$", &["a", "&", "b"], &["c"]);
    check("^[+--]$", &["+", ",", "-"], &["."]);
    check("^[a~~b]$", &["~"], &["c"]);
    check("^[[:alpha:]_]+$", &["ab_"], &["1"]);
    check(r"^[\b]$", &["\u{8}"], &["b"]);
    check(r"^[\]\\]$", &["]", "\\"], &["a"]);
    check("^/a/{id}$", &["/a/{id}"], &["/a/id"]);
    check("^a{2}$", &["aa"], &["a"]);
    check("(?<!x)a(?=b)", &["yab"], &["xab", "ya"]);
    check(r"^(a|b)\1$", &["aa", "bb"], &["ab"]);
    check("^(?>a+)b$", &["aab"], &["aa"]);
    check("^a++b$", &["aab"], &["aa"]);
    check(r"(?<year>\d{4})", &["2026"], &["26"]);
    check(r"(?P<year>\d{4})", &["2026"], &[]);
    check("é", &["é"], &["e"]);
}

#[test]
fn what_is_refused() {
    let check = |pattern: &str, flags: &str, word: &str| {
        let error = Pattern::with_flags(pattern, flags)
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(error.contains(word), "{pattern}: {error}");
    };
    check("(", "", "position");
    check("a[", "", "position");
    check("*", "", "position");
    check("\\", "", "ackslash");
    check("(?R)", "", "position");
    check("a", "iz", "unknown flag \"z\"");
    check("((a{200}){200}){200}", "", "larger than 4194304 bytes");
    check("[b-a]", "", "invalid character class range");
    check("a{3,1}", "", "repetition");
    check(&"a".repeat(TEXT_LIMIT + 1), "", "longer than");
}

#[test]
fn matches_and_groups() {
    let pattern = Pattern::new(r"(\d)(x)?").unwrap();
    assert_eq!(pattern.find("ab12"), Some((2, 3)));
    assert_eq!(pattern.groups(), 3);
    assert_eq!(
        pattern.captures("é7"),
        Some(vec![Some("7".into()), Some("7".into()), None])
    );
    assert_eq!(pattern.captures("a"), None);
    assert_eq!(pattern.text(), r"(\d)(x)?");
}

#[test]
fn replacements() {
    let check = |pattern: &str, text: &str, to: &str, once: Option<&str>, all: Option<&str>| {
        let pattern = Pattern::new(pattern).unwrap();
        assert_eq!(
            pattern.replace_once(text, to).as_deref(),
            once,
            "{pattern:?} {text} {to}"
        );
        assert_eq!(
            pattern.replace_all(text, to).as_deref(),
            all,
            "{pattern:?} {text} {to}"
        );
    };
    let both = |text| (Some(text), Some(text));
    let (once, all) = both("abbbba");
    check("b+", "abba", "$0$0", once, all);
    let (once, all) = both("[a|]!");
    check("(a)(b)?", "a!", "[$1|$2]", once, all);
    let (once, all) = both("$1 a $x ${x} ${");
    check("a", "a", "$$1 ${0} $x ${x} ${", once, all);
    let (once, all) = both("a");
    check("a", "a", "$&$9${99}$99999999999999999999", once, all);
    check("z", "a", "y", None, None);
    check("^", "a", "y", Some("ya"), Some("ya"));
    check("a", "banana", "", Some("bnana"), Some("bnn"));
    check("", "ab", "-", Some("-ab"), Some("-a-b-"));
    check("^a", "a", "", Some(""), Some(""));
    check(
        "(.)(.)(.)(.)(.)(.)(.)(.)(.)(j)",
        "abcdefghij",
        "$10",
        Some("j"),
        Some("j"),
    );
}

#[test]
fn a_hopeless_match_ends() {
    let pattern = Pattern::new(r"^(?=(a+)+$)(a+)+\1b").unwrap();
    let text = "a".repeat(200);
    assert_eq!(pattern.try_is_match(&text), Err(TooManySteps));
    assert!(!pattern.is_match(&text));
    assert_eq!(pattern.replace_all(&text, "x"), None);
    // Without look-around the same shape is linear.
    assert_eq!(
        Pattern::new("^(a+)+$").unwrap().try_is_match(&(text + "!")),
        Ok(false)
    );
}

proptest::proptest! {
    #[test]
    fn any_text_is_compiled_or_refused(text in r"[\\\[\](){}?*+|^$a-c0-2&~:<>=! QEdwshRNbx-]{0,16}") {
        if let Ok(pattern) = Pattern::with_flags(&text, "ix") {
            let _ = pattern.replace_all("abc 012 a-b", "<$1>");
        }
    }

    #[test]
    fn quoted_text_matches_itself(text in r"[^\\]{1,12}") {
        let pattern = Pattern::new(&format!("^\\Q{text}\\E$")).unwrap();
        proptest::prop_assert!(pattern.is_match(&text));
    }

    #[test]
    fn class_members_match_themselves(text in r"[ -\[_-~]{1,6}") {
        // `^` first and `-` between two others mean something in PCRE, too; so does `[:`.
        let members: String = text.chars().filter(|c| !"^-:".contains(*c)).collect();
        if let Some(first) = members.chars().next() {
            let pattern = Pattern::new(&format!("^[{members}]$")).unwrap();
            proptest::prop_assert!(pattern.is_match(&first.to_string()));
        }
    }
}
