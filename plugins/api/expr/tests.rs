// Rows read better with values than with references to them.
#![allow(clippy::needless_pass_by_value)]

use serde_json::json;

use super::*;

struct Fixed;

impl VarSource for Fixed {
    fn var<'b>(&'b self, var: &'b Var) -> Option<VarValue<'b>> {
        Some(match var.name() {
            "arg_n" => VarValue::Str("5".into()),
            "arg_hex" => VarValue::Str(" 0x10 ".into()),
            "http_x" => VarValue::Str("Hello".into()),
            "arg_empty" => VarValue::Str("".into()),
            "arg_flag" => VarValue::True,
            "post_arg.off" => VarValue::False,
            "post_arg.n" => VarValue::Number(5.into()),
            "remote_addr" => VarValue::Str("10.1.2.3".into()),
            "http_v6" => VarValue::Str("[2001:db8:0:1::1]".into()),
            "http_mapped" => VarValue::Str("::ffff:10.1.2.3".into()),
            "graphql_root_fields" => VarValue::List(vec!["a".into(), "7".into()]),
            _ => return None,
        })
    }
}

#[track_caller]
fn check(expr: Value, expected: bool) {
    let parsed = Expr::parse(&expr).unwrap_or_else(|e| panic!("{expr}: {e}"));
    assert_eq!(parsed.eval(&Fixed), expected, "{expr}");
    assert_eq!(parsed.unmet(&Fixed).is_empty(), expected, "{expr}");
}

/// One condition, and its negation with `!`.
#[track_caller]
fn both(condition: Value, expected: bool) {
    check(json!([condition]), expected);
    let mut negated = condition.as_array().unwrap().clone();
    if negated.len() == 3 {
        negated.insert(1, json!("!"));
        check(json!([negated]), !expected);
    }
}

#[test]
fn equality() {
    both(json!(["arg_n", "==", "5"]), true);
    both(json!(["arg_n", "==", "05"]), false);
    both(json!(["arg_n", "==", 5]), true);
    both(json!(["arg_n", "==", 5.0]), true);
    both(json!(["arg_hex", "==", 16]), true);
    both(json!(["http_x", "==", 5]), false);
    both(json!(["arg_n", "5"]), true);
    both(json!(["arg_n", 5]), true);
    both(json!(["arg_none", "==", null]), true);
    both(json!(["arg_none", "~=", null]), false);
    both(json!(["arg_n", "==", null]), false);
    both(json!(["arg_n", "~=", null]), true);
    both(json!(["arg_none", "==", ""]), false);
    both(json!(["arg_empty", "==", ""]), true);
    both(json!(["arg_flag", "==", true]), true);
    both(json!(["arg_flag", "==", "true"]), false);
    both(json!(["arg_flag", "==", 1]), false);
    both(json!(["arg_flag", "==", false]), false);
    both(json!(["arg_none", "==", false]), false);
    both(json!(["post_arg.off", "==", false]), true);
    both(json!(["post_arg.n", "==", 5]), true);
    both(json!(["post_arg.n", "==", "5"]), false);
    both(json!(["arg_n", "==", ["5"]]), false);
    both(json!(["arg_n", "~=", ["5"]]), true);
    both(json!(["arg_none", "~=", "x"]), true);
    both(json!(["arg_none", "~=", 5]), true);
    both(json!(["http_x", "~=", 5]), true);
    both(json!(["arg_n", "~=", 5]), false);
    both(json!(["arg_n", "~=", "5"]), false);
}

#[test]
fn order() {
    both(json!(["arg_n", ">", 4]), true);
    both(json!(["arg_n", ">", "4"]), true);
    both(json!(["arg_n", ">", 5]), false);
    both(json!(["arg_n", ">=", 5]), true);
    both(json!(["arg_n", "<", 5]), false);
    both(json!(["arg_n", "<=", " 0x5 "]), true);
    both(json!(["arg_n", "<", 1e3]), true);
    both(json!(["post_arg.n", ">", 4]), true);
    both(json!(["arg_none", ">", 4]), false);
    both(json!(["http_x", ">", 4]), false);
    both(json!(["arg_n", ">", "x"]), false);
    both(json!(["arg_n", ">", null]), false);
    both(json!(["arg_flag", ">", 0]), false);
}

#[test]
fn patterns() {
    both(json!(["http_x", "~~", "^He"]), true);
    both(json!(["http_x", "~~", "ll"]), true);
    both(json!(["http_x", "~~", "^he"]), false);
    both(json!(["http_x", "~*", "^he"]), true);
    both(json!(["http_x", "~~", "^(?!Bye)"]), true);
    both(json!(["http_x", "~~", r"(.)\1"]), true);
    both(json!(["arg_n", "~~", 5]), true);
    both(json!(["arg_none", "~~", ".*"]), false);
    both(json!(["arg_empty", "~~", ".*"]), true);
}

#[test]
fn sets_and_networks() {
    both(json!(["http_x", "IN", ["a", "Hello"]]), true);
    both(json!(["http_x", "in", ["hello"]]), false);
    both(json!(["arg_n", "in", [5]]), false);
    both(json!(["post_arg.n", "in", [5]]), true);
    both(json!(["arg_flag", "in", [true]]), true);
    both(json!(["arg_none", "in", [null, ""]]), false);
    both(json!(["http_x", "in", "Hello"]), false);
    both(json!(["http_x", "in", []]), false);
    both(json!(["graphql_root_fields", "has", "a"]), true);
    both(json!(["graphql_root_fields", "has", "b"]), false);
    both(json!(["graphql_root_fields", "has", 7]), true);
    both(json!(["graphql_root_fields", "has", null]), false);
    both(json!(["http_x", "has", "Hello"]), false);
    both(json!(["arg_none", "has", "a"]), false);
    both(
        json!(["remote_addr", "ipmatch", ["192.0.2.1", "10.0.0.0/8"]]),
        true,
    );
    both(json!(["remote_addr", "ipmatch", "10.1.2.3"]), true);
    both(json!(["remote_addr", "ipmatch", "10.1.2.4"]), false);
    both(json!(["remote_addr", "ipmatch", "10.1.2.9/24"]), true);
    both(json!(["remote_addr", "ipmatch", "::/0"]), false);
    both(json!(["http_v6", "ipmatch", "2001:db8:0:1::/64"]), true);
    both(json!(["http_v6", "ipmatch", "2001:db8:0:2::/64"]), false);
    both(json!(["http_v6", "ipmatch", "0.0.0.0/0"]), false);
    both(json!(["http_mapped", "ipmatch", "10.0.0.0/8"]), true);
    both(json!(["http_mapped", "ipmatch", "::ffff:0:0/96"]), true);
    both(json!(["http_x", "ipmatch", "::/0"]), false);
    both(json!(["arg_none", "ipmatch", "::/0"]), false);
}

#[test]
fn groups() {
    let (yes, no) = (json!(["arg_n", "==", "5"]), json!(["arg_n", "==", "6"]));
    check(json!([]), true);
    check(json!({}), true);
    check(json!([yes, yes]), true);
    check(json!([yes, no]), false);
    check(json!(["OR", no, yes]), true);
    check(json!(["OR", no, no]), false);
    check(json!(["!OR", no, no]), true);
    check(json!(["!or", no, yes]), false);
    check(json!(["and", yes, yes]), true);
    check(json!(["!AND", yes, yes]), false);
    check(json!(["!AND", yes, no]), true);
    check(json!(["and", yes, ["OR", no, ["!AND", no, yes]]]), true);
    check(json!([yes, ["OR", no, yes]]), true);
    check(json!([[yes, no]]), false);
    check(json!(["OR", [yes, no], [yes, yes]]), true);
    let any = json!([
        ["arg_x", "==", 1],
        ["OR", ["post_arg.a", "==", 1], ["status", ">", 1]]
    ]);
    let any = Expr::parse(&any).unwrap();
    assert!(any.needs_body() && any.needs_response());
    let none = Expr::parse(&json!([["arg_x", "==", 1]])).unwrap();
    assert!(!none.needs_body() && !none.needs_response());
}

#[test]
fn what_is_refused() {
    let check = |expr: Value, expected: &str| {
        let got = Expr::parse(&expr).map(|_| ()).unwrap_err().to_string();
        assert_eq!(got, expected, "{expr}");
    };
    check(
        json!(["arg_n", "==", "5"]),
        "rule should be wrapped inside brackets",
    );
    check(json!("x"), "rule should be wrapped inside brackets");
    check(json!(null), "rule should be wrapped inside brackets");
    check(json!({"a": 1}), "rule should be wrapped inside brackets");
    check(
        json!([["a", "==", 1], "x"]),
        "[1]: rule should be wrapped inside brackets",
    );
    check(json!(["OR", ["arg_n", "==", "5"]]), "rule too short");
    check(json!([["a", "==", 1], ["!AND"]]), "[1]: rule too short");
    check(json!([["arg_n", "=", "5"]]), "[0][1]: invalid operator '='");
    check(
        json!([["arg_n", "!", "NOT", "5"]]),
        "[0][2]: invalid operator 'not'",
    );
    check(json!([["arg_n", 1, "5"]]), "[0][1]: invalid expression");
    check(json!([[1, "==", "5"]]), "[0][0]: invalid expression");
    check(
        json!([["arg_n", "not", "==", "5"]]),
        "[0][1]: bad 'not' expression",
    );
    check(json!([["arg_n"]]), "[0]: invalid expression");
    check(json!([[]]), "[0]: invalid expression");
    check(json!([["a", "!", "==", 1, 2]]), "[0]: invalid expression");
    check(
        json!([["remote_addr", "ipmatch", "x"]]),
        "[0][2]: invalid ip address: x",
    );
    check(
        json!([["remote_addr", "ipmatch", ["10.0.0.1", "10.0.0.0/33"]]]),
        "[0][2]: invalid ip address: 10.0.0.0/33",
    );
    check(
        json!([["remote_addr", "!", "ipmatch", 1]]),
        "[0][3]: invalid ip address",
    );
    check(
        json!([["remote_addr", "ipmatch", []]]),
        "[0][2]: invalid ip address",
    );
    check(
        json!([["uri", "~~", true]]),
        "[0][2]: a regular expression must be a string",
    );
    check(
        json!([["a", "==", 1], ["OR", ["b", "==", 1], ["c", "%", 1]]]),
        "[1][2][1]: invalid operator '%'",
    );
    let broken = Expr::parse(&json!([["uri", "~~", "("]]))
        .unwrap_err()
        .to_string();
    assert!(
        broken.starts_with("[0][2]: invalid regular expression: "),
        "{broken}"
    );
    let deep = (0..40).fold(json!(["a", "==", 1]), |inner, _| json!([inner]));
    let deep = Expr::parse(&deep).unwrap_err().to_string();
    assert!(deep.ends_with(": groups nested deeper than 32"), "{deep}");
}

#[test]
fn what_decided_is_named_with_its_place() {
    let check = |expr: Value, expected: &[&str]| {
        let unmet = Expr::parse(&expr).unwrap().unmet(&Fixed);
        let line = |u: Unmet| {
            let found = u.found.unwrap_or_else(|| "(absent)".into());
            format!("{} {}, found {found}", u.at, u.condition)
        };
        let lines: Vec<String> = unmet.into_iter().map(line).collect();
        assert_eq!(lines, expected, "{expr}");
    };
    check(json!([["arg_n", "==", "5"]]), &[]);
    check(
        json!([
            ["arg_n", "==", "5"],
            ["http_x_canary", "==", "v2"],
            ["arg_n", ">", 9]
        ]),
        &["[1] http_x_canary == v2, found (absent)"],
    );
    check(
        json!([["OR", ["arg_n", "==", "6"], ["http_x", "~*", "^a"]]]),
        &[
            "[0][1] arg_n == 6, found 5",
            "[0][2] http_x ~* ^a, found Hello",
        ],
    );
    check(
        json!(["!OR", ["arg_n", "==", "6"], ["arg_n", "==", "5"]]),
        &["[2] arg_n ~= 5, found 5"],
    );
    check(
        json!([
            "!AND",
            ["arg_n", "in", ["5", 7]],
            ["remote_addr", "ipmatch", "10.0.0.0/8"]
        ]),
        &[
            "[1] arg_n ! in [5, 7], found 5",
            "[2] remote_addr ! ipmatch [10.0.0.0/8], found 10.1.2.3",
        ],
    );
    check(
        json!([["arg_n", "!", ">", 4], ["arg_empty", "==", ""]]),
        &["[0] arg_n ! > 4, found 5"],
    );
    check(
        json!([["arg_empty", "~=", ""]]),
        &["[0] arg_empty ~= \"\", found "],
    );
}
