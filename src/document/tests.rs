use super::*;
use serde_json::json;

fn yaml(text: &str) -> Document {
    read_yaml(text.as_bytes(), "f").unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

fn check_value(text: &str, expected: &Value) {
    assert_eq!(yaml(text).value(), expected, "{text:?}");
}

fn check_errors(result: Result<Document, Problems>, expected: &[&str]) {
    let problems = result.err().map(|p| p.to_string()).unwrap_or_default();
    let found: Vec<&str> = problems.lines().collect();
    assert_eq!(found.len(), expected.len(), "found: {problems}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            found.starts_with(expected),
            "found `{found}`, expected `{expected}`"
        );
    }
}

fn yaml_errors(text: impl AsRef<[u8]>, expected: &[&str]) {
    check_errors(read_yaml(text.as_ref(), "f"), expected);
}

fn json_errors(text: impl AsRef<[u8]>, expected: &[&str]) {
    check_errors(read_json(text.as_ref(), "f"), expected);
}

#[test]
fn scalars_follow_the_core_schema() {
    let check = |text: &str, expected: Value| {
        check_value(&format!("k: {text}\n"), &json!({ "k": expected }));
        check_value(&format!("- {text}\n"), &json!([expected]));
    };
    check("", Value::Null);
    check("~", Value::Null);
    check("null", Value::Null);
    check("'null'", json!("null"));
    check("true", json!(true));
    check("No", json!(false));
    check("on", json!(true));
    check("\"on\"", json!("on"));
    check("y", json!("y"));
    check("12", json!(12));
    check("+12", json!(12));
    check("-12", json!(-12));
    check("012", json!(12));
    check("0x1F", json!(31));
    check("0o17", json!(15));
    check("0x", json!("0x"));
    check("0x+1", json!("0x+1"));
    check("18446744073709551615", json!(u64::MAX));
    check("1.50", json!(1.5));
    check(".5", json!(0.5));
    check("1e3", json!(1000.0));
    check("1_000", json!("1_000"));
    check("1.2.3", json!("1.2.3"));
    check("127.0.0.1", json!("127.0.0.1"));
    check("1s", json!("1s"));
    check("!!str 12", json!("12"));
    check("! 12", json!("12"));
    check("!!int 12", json!(12));
    check("!!float 12", json!(12));
    check("'12'", json!("12"));
}

#[test]
fn structure_is_kept() {
    check_value("", &json!({}));
    check_value("# nothing\n#END\n", &json!({}));
    check_value("---\n~\n", &json!({}));
    check_value("\u{feff}a: 1", &json!({"a": 1}));
    check_value(
        "1: a\non: b\n~: c\n",
        &json!({"1": "a", "on": "b", "~": "c"}),
    );
    check_value(
        "a: |\n  x\n  y\nb: >-\n  x\n  y\n",
        &json!({"a": "x\ny\n", "b": "x y"}),
    );
    check_value("a: &n 1\nb: *n\n", &json!({"a": 1, "b": 1}));
    check_value("a: &k x\n*k : 1\n", &json!({"a": "x", "x": 1}));
    check_value(
        "{a: [1, {b: 2}], c: {}}\r\n",
        &json!({"a": [1, {"b": 2}], "c": {}}),
    );
}

#[test]
fn merges_fill_in_what_is_missing() {
    let base = "x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\n";
    let check = |text: &str, expected: Value| {
        assert_eq!(
            yaml(&format!("{base}z:\n  {text}\n")).value()["z"],
            expected,
            "{text}"
        );
    };
    check("<<: *x", json!({"a": 1, "b": 2}));
    check("<<: *x\n  a: 9", json!({"a": 9, "b": 2}));
    check("a: 9\n  <<: *x", json!({"a": 9, "b": 2}));
    check("<<: [*x, *y]", json!({"a": 1, "b": 2, "c": 4}));
    check("'<<': 1", json!({"<<": 1}));
    yaml_errors("a:\n  <<: 1\n", &["f:2:3: `<<` takes a mapping"]);
    yaml_errors("a:\n  <<: {}\n  <<: {}\n", &["f:3:3: duplicate key `<<`"]);
}

#[test]
fn yaml_errors_have_places() {
    yaml_errors(
        "a: 1\nb: 2\na: 3\nb: 4\n",
        &[
            "f:3:1: duplicate key `a`, first at line 1, column 1",
            "f:4:1: duplicate key `b`, first at line 2, column 1",
        ],
    );
    yaml_errors("a: 1\n---\nb: 2\n", &["f:2:1: a second document"]);
    yaml_errors("a: [1\nb: 2\n", &["f:"]);
    yaml_errors("a: *x\n", &["f:1:4: not YAML"]);
    yaml_errors("a: &x [*x]\n", &["f:1:8: the alias stands inside"]);
    yaml_errors(
        "? [a]\n: 1\n",
        &["f:1:3: a list or mapping cannot be a key"],
    );
    yaml_errors("a: !x 1\n", &["f:1:"]);
    yaml_errors("a: !!int x\n", &["f:1:"]);
    yaml_errors("a: .inf\n", &["f:1:4: `.inf` is not a number"]);
    yaml_errors("a: 1e999\n", &["f:1:4: the number `1e999` is too large"]);
    yaml_errors(b"a: 1\nb: \xff\n", &["f:2:4: is not UTF-8: byte 0xFF"]);
    yaml_errors(
        "[".repeat(MAX_DEPTH + 1),
        &["f:1:65: nested deeper than 64 levels"],
    );
}

#[test]
fn copies_are_bounded() {
    let mut bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n".to_owned();
    for i in 1..10 {
        let alias = format!("*a{}", i - 1);
        bomb += &format!("a{i}: &a{i} [{}]\n", [alias.as_str(); 10].join(", "));
    }
    yaml_errors(&bomb, &["f:6:"]);

    let mut long = format!("a: &a {}\nb:\n", "x".repeat(1 << 20));
    long += &"- *a\n".repeat(64);
    yaml_errors(&long, &["f:66:3: anchors and aliases copy more"]);

    let mut deep = "a0: &a0 [1]\n".to_owned();
    for i in 1..80 {
        deep += &format!("a{i}: &a{i} [*a{}]\n", i - 1);
    }
    yaml_errors(&deep, &["f:64:"]);
}

#[test]
fn places_are_found() {
    let text = "\
routes:
  - id: 1
    upstream:
      nodes:
        127.0.0.1:80: 1
        a.b: 2
        a:
          b: 3
    list: [1, {x: 2}]
  - &base
    id: 2
  - <<: *base
    uri: /é
";
    let doc = yaml(text);
    let check = |path: &str, expected: (u32, u32)| {
        assert_eq!(doc.place(path), Some(expected), "{path}");
    };
    check("", (1, 1));
    check("routes", (1, 1));
    check("routes[0]", (2, 5));
    check("routes[0].id", (2, 5));
    check("routes[0].upstream.nodes", (4, 7));
    check("routes[0].upstream.nodes.127.0.0.1:80", (5, 9));
    check("routes[0].upstream.nodes.a.b", (6, 9));
    check("routes[0].upstream.nodes.a", (7, 9));
    check("routes[0].upstream.nodes.missing", (4, 7));
    check("routes[0].list[1].x", (9, 16));
    check("routes[0].list[7]", (9, 5));
    check("routes[0].list[x]", (9, 5));
    check("routes[2].uri", (13, 5));
    check("routes[2].id", (11, 5));
    assert_eq!(yaml("").place("a"), None);
}

#[test]
fn problems_get_file_and_place() {
    let doc = yaml("routes:\n- uri: 1\n");
    let mut problems = Problems::default();
    problems.add("uri", "is no path");
    problems.add("", "is odd");
    let mut other = Problem::new("uri", "elsewhere");
    other.file = Some("g".into());
    problems.push(other);
    doc.locate(&mut problems, "routes[0]");
    assert_eq!(
        problems.to_string(),
        "f:2:3: uri: is no path\nf:2:3: is odd\ng: uri: elsewhere"
    );
}

#[test]
fn json_is_read_as_the_reference_does() {
    for text in [
        r#"{"a": [1, -2, 3.5, 1e2, 18446744073709551615, 1E-2, 100000000000000000000]}"#,
        r#"{"s": "a\"\\\/\b\f\n\r\té\u00e9\ud83d\ude00", "": null, "t": true, "f": false}"#,
        "[ ]",
        "{\r\n\t}",
        "\"x\"",
    ] {
        let expected: Value = serde_json::from_str(text).unwrap();
        let doc = read_json(text.as_bytes(), "f").unwrap();
        assert_eq!(doc.value().to_string(), expected.to_string());
    }
    assert_eq!(read_json(b" ", "f").unwrap().value(), &json!({}));
    let doc = read_json("{\"é\": 1,\n \"b\": [1, {\"c\": 2}]}".as_bytes(), "f").unwrap();
    assert_eq!(doc.place("b[1].c"), Some((2, 12)));
    assert_eq!(doc.place("b"), Some((2, 2)));
}

#[test]
fn json_errors_have_places() {
    json_errors(
        "{\"a\": 1,\n \"a\": 2}",
        &["f:2:2: duplicate key `a`, first at line 1, column 2"],
    );
    json_errors(
        "{\"é\": x}",
        &["f:1:7: not JSON: expected a value, found `x`"],
    );
    json_errors("[1, ]", &["f:1:5: not JSON: expected a value, found `]`"]);
    json_errors(
        "[1",
        &["f:1:3: not JSON: expected `,` or `]`, found the end"],
    );
    json_errors(
        "{a: 1}",
        &["f:1:2: not JSON: expected a name in double quotes"],
    );
    json_errors("{\"a\" 1}", &["f:1:6: not JSON: expected `:`"]);
    json_errors("{\"a\": 1,}", &["f:1:9: not JSON: expected a name"]);
    json_errors("1 2", &["f:1:3: something follows"]);
    json_errors("\"a", &["f:1:3: not JSON: expected a closing"]);
    json_errors("\"a\nb\"", &["f:1:3: not JSON: a control character"]);
    json_errors(r#""\x""#, &["f:1:2: not JSON: an unknown escape"]);
    json_errors(
        r#""\ud800""#,
        &["f:1:2: not JSON: an escape that is no character"],
    );
    json_errors(
        r#""\u+123""#,
        &["f:1:2: not JSON: an escape that is no character"],
    );
    json_errors("01", &["f:1:1: not JSON: `01` is not a number"]);
    json_errors("[-]", &["f:1:2: not JSON: `-` is not a number"]);
    json_errors("[1.]", &["f:1:2: not JSON"]);
    json_errors("[1e]", &["f:1:2: not JSON"]);
    json_errors("1e999", &["f:1:1: the number `1e999` is too large"]);
    json_errors("[".repeat(MAX_DEPTH + 1), &["f:1:65: nested deeper"]);
    json_errors(b"[\"\xff\"]", &["f:1:3: is not UTF-8"]);
}

#[test]
fn environment_is_put_in() {
    let env = |name: &str| match name {
        "A" => Some("1".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    };
    let check = |text: &str, expected: &str| match substitute_env(text, &env, "f") {
        Ok(found) => assert_eq!(found, expected, "{text}"),
        Err(found) => assert_eq!(found.to_string(), expected, "{text}"),
    };
    check("plain", "plain");
    check("x${{A}}y${{ A }}", "x1y1");
    check("${{A:=2}} ${{B:=2}} ${{ B := a b }}", "1 2 a b");
    check("${{EMPTY}}${{EMPTY:=x}}", "");
    check("${{B:=}}", "");
    check("${A} ${{}} ${{-}} ${{A\n}}", "${A} ${{}} ${{-}} ${{A\n}}");
    check(
        "a\n é${{B}} ${{A}} ${{C}}",
        "f:2:3: can't find environment variable B (set it, or give a default: ${{B:=value}})\n\
         f:2:17: can't find environment variable C (set it, or give a default: ${{C:=value}})",
    );
}

#[test]
fn references_that_do_not_end_cost_nothing() {
    let env = |_: &str| None;
    // Each of these would be searched to the end of the text, or counted to its place.
    let open = "${{A".repeat(200_000);
    assert_eq!(substitute_env(&open, &env, "f").unwrap(), open);
    let missing = "${{A}}\n".repeat(200_000);
    assert_eq!(
        substitute_env(&missing, &env, "f").unwrap_err().len(),
        Problems::MOST
    );
}
