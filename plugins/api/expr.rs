//! Conditions over variables, as `vars` of a route writes them.
//!
//! `[["arg_x", "==", "1"], ["OR", [..], [..]]]`: a list is an AND; a list that
//! starts with `AND`, `OR`, `!AND` or `!OR` combines its members. A condition is
//! `[variable, operator, value]`, negated as `[variable, "!", operator, value]`.
//! Source: lua-resty-expr.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use crate::pattern::Pattern;
use crate::problem::Problem;
use crate::var::{Var, VarSource, VarValue, number};

/// How deep groups may be nested.
const MAX_DEPTH: usize = 32;

/// A parsed condition.
#[derive(Clone, Debug)]
pub struct Expr {
    node: Node,
    needs_body: bool,
}

#[derive(Clone, Debug)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Test { var: Var, op: Op },
}

#[derive(Clone, Debug)]
enum Op {
    EqNumber(f64),
    EqText(String),
    EqBool(bool),
    EqNil,
    /// Lists and objects are never equal to a variable.
    EqNever,
    Greater(f64),
    GreaterEq(f64),
    Less(f64),
    LessEq(f64),
    /// A comparison with something that is not a number.
    Never,
    Matches(Pattern),
    In(Vec<Value>),
    Has(Value),
    Ip(Vec<IpNet>),
}

impl Expr {
    /// Parses a condition.
    ///
    /// # Errors
    /// APISIX's text; the path is the position inside the lists, such as `[0][1]`.
    pub fn parse(value: &Value) -> Result<Expr, Problem> {
        let list = value.as_array().ok_or_else(|| Problem::new("", "rule should be wrapped inside brackets"))?;
        let starts_group = |first: &Value| first.is_array() || first.as_str().is_some_and(|s| logical(s).is_some());
        if list.first().is_some_and(|first| !starts_group(first)) {
            return Err(Problem::new("", "rule should be wrapped inside brackets"));
        }
        let node = group(list, 0)?;
        let needs_body = reads_body(&node);
        Ok(Expr { node, needs_body })
    }

    /// Whether the condition holds.
    pub fn eval(&self, source: &dyn VarSource) -> bool {
        eval(&self.node, source)
    }

    /// Whether some variable looks into the request body.
    pub fn needs_body(&self) -> bool {
        self.needs_body
    }
}

fn logical(word: &str) -> Option<(bool, bool)> {
    // (negated, any)
    match word.to_ascii_uppercase().as_str() {
        "AND" => Some((false, false)),
        "OR" => Some((false, true)),
        "!AND" => Some((true, false)),
        "!OR" => Some((true, true)),
        _ => None,
    }
}

fn group(list: &[Value], depth: usize) -> Result<Node, Problem> {
    if depth > MAX_DEPTH {
        return Err(Problem::new("", format!("groups nested deeper than {MAX_DEPTH}")));
    }
    let op = list.first().and_then(Value::as_str).and_then(logical);
    let start = usize::from(op.is_some());
    if op.is_some() && list.len() < 3 {
        return Err(Problem::new("", "rule too short"));
    }
    let mut nodes = Vec::with_capacity(list.len() - start);
    for (i, item) in list.iter().enumerate().skip(start) {
        let node = member(item, depth + 1).map_err(|mut problem| {
            problem.path = format!("[{i}]{}", problem.path);
            problem
        })?;
        nodes.push(node);
    }
    Ok(match op {
        Some((negated, any)) => {
            let node = if any { Node::Any(nodes) } else { Node::All(nodes) };
            if negated { Node::Not(Box::new(node)) } else { node }
        }
        None => Node::All(nodes),
    })
}

fn member(item: &Value, depth: usize) -> Result<Node, Problem> {
    let list = item.as_array().ok_or_else(|| Problem::new("", "rule should be wrapped inside brackets"))?;
    match list.first() {
        Some(Value::Array(_)) => group(list, depth),
        Some(Value::String(word)) if logical(word).is_some() => group(list, depth),
        _ => condition(list),
    }
}

fn condition(list: &[Value]) -> Result<Node, Problem> {
    let invalid = || Problem::new("", "invalid expression");
    let name = list.first().and_then(Value::as_str).ok_or_else(invalid)?;
    let var = Var::parse(name);
    let (negated, op, value) = match list {
        [_, value] => return Ok(Node::Test { var, op: equals(value) }),
        [_, op, value] => (false, op, value),
        [_, bang, op, value] => {
            if bang.as_str() != Some("!") {
                return Err(Problem::new("[1]", "bad 'not' expression"));
            }
            (true, op, value)
        }
        _ => return Err(invalid()),
    };
    let op = op.as_str().ok_or_else(invalid)?;
    let (inverted, parsed) = operator(op, value)?;
    let test = Node::Test { var, op: parsed };
    Ok(if inverted != negated { Node::Not(Box::new(test)) } else { test })
}

/// The operator, and whether its outcome is to be inverted.
fn operator(op: &str, value: &Value) -> Result<(bool, Op), Problem> {
    let limit = || match value {
        Value::Number(n) => n.as_f64(),
        Value::String(s) => number(s),
        _ => None,
    };
    let ordered = |make: fn(f64) -> Op| limit().map_or(Op::Never, make);
    let regex = |flags: &str| {
        let text = value.as_str().ok_or_else(|| Problem::new("", "invalid expression"))?;
        Pattern::with_flags(text, flags).map(Op::Matches).map_err(|e| Problem::new("", e.to_string()))
    };
    let op = op.to_ascii_lowercase();
    Ok(match op.as_str() {
        "==" => (false, equals(value)),
        "~=" => (true, equals(value)),
        ">" => (false, ordered(Op::Greater)),
        ">=" => (false, ordered(Op::GreaterEq)),
        "<" => (false, ordered(Op::Less)),
        "<=" => (false, ordered(Op::LessEq)),
        "~~" => (false, regex("")?),
        "~*" => (false, regex("i")?),
        "in" => (false, Op::In(value.as_array().cloned().unwrap_or_default())),
        "has" => (false, Op::Has(value.clone())),
        "ipmatch" => (false, Op::Ip(networks(value)?)),
        other => return Err(Problem::new("", format!("invalid operator '{other}'"))),
    })
}

fn equals(value: &Value) -> Op {
    match value {
        Value::Null => Op::EqNil,
        Value::Bool(b) => Op::EqBool(*b),
        Value::Number(n) => n.as_f64().map_or(Op::EqNever, Op::EqNumber),
        Value::String(s) => Op::EqText(s.clone()),
        Value::Array(_) | Value::Object(_) => Op::EqNever,
    }
}

fn networks(value: &Value) -> Result<Vec<IpNet>, Problem> {
    let one = |value: &Value| -> Result<IpNet, Problem> {
        let bad = |text: &str| Problem::new("", format!("invalid ip address: {text}"));
        let text = value.as_str().ok_or_else(|| Problem::new("", "invalid ip address"))?;
        text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map_err(|_| bad(text))
    };
    match value {
        Value::Array(list) if !list.is_empty() => list.iter().map(one).collect(),
        Value::String(_) => Ok(vec![one(value)?]),
        _ => Err(Problem::new("", "invalid ip address")),
    }
}

fn reads_body(node: &Node) -> bool {
    match node {
        Node::All(nodes) | Node::Any(nodes) => nodes.iter().any(reads_body),
        Node::Not(node) => reads_body(node),
        Node::Test { var, .. } => var.needs_body(),
    }
}

fn eval(node: &Node, source: &dyn VarSource) -> bool {
    match node {
        Node::All(nodes) => nodes.iter().all(|node| eval(node, source)),
        Node::Any(nodes) => nodes.iter().any(|node| eval(node, source)),
        Node::Not(node) => !eval(node, source),
        Node::Test { var, op } => test(op, source.var(var)),
    }
}

fn test(op: &Op, value: Option<VarValue<'_>>) -> bool {
    let as_number = || value.as_ref().and_then(VarValue::as_number);
    match op {
        Op::EqNil => value.is_none(),
        Op::EqNever | Op::Never => false,
        Op::EqBool(b) => *b && matches!(value, Some(VarValue::True)),
        Op::EqNumber(n) => as_number().is_some_and(|v| v == *n),
        Op::EqText(text) => matches!(&value, Some(VarValue::Str(v)) if v == text),
        Op::Greater(n) => as_number().is_some_and(|v| v > *n),
        Op::GreaterEq(n) => as_number().is_some_and(|v| v >= *n),
        Op::Less(n) => as_number().is_some_and(|v| v < *n),
        Op::LessEq(n) => as_number().is_some_and(|v| v <= *n),
        Op::Matches(pattern) => value.is_some_and(|v| pattern.is_match(&v.as_text())),
        Op::In(list) => value.is_some_and(|v| match v {
            VarValue::Str(text) => list.iter().any(|item| item.as_str() == Some(&*text)),
            VarValue::True => list.iter().any(|item| item.as_bool() == Some(true)),
            VarValue::List(_) => false,
        }),
        Op::Has(wanted) => match value {
            Some(VarValue::List(list)) => list.iter().any(|item| wanted.as_str() == Some(item)),
            _ => false,
        },
        Op::Ip(nets) => value.is_some_and(|v| {
            let text = v.as_text();
            let text = text.trim_start_matches('[').trim_end_matches(']');
            text.parse::<IpAddr>().is_ok_and(|ip| nets.iter().any(|net| net.contains(&ip)))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Fixed;
    impl VarSource for Fixed {
        fn var<'b>(&'b self, var: &'b Var) -> Option<VarValue<'b>> {
            Some(match var.name() {
                "arg_n" => VarValue::Str("5".into()),
                "arg_hex" => VarValue::Str(" 0x10 ".into()),
                "http_x" => VarValue::Str("Hello".into()),
                "arg_flag" => VarValue::True,
                "remote_addr" => VarValue::Str("10.1.2.3".into()),
                "http_v6" => VarValue::Str("[2001:db8:0:1::1]".into()),
                "graphql_root_fields" => VarValue::List(vec!["a".into(), "b".into()]),
                _ => return None,
            })
        }
    }

    fn check(expr: Value, expected: bool) {
        let parsed = Expr::parse(&expr).unwrap_or_else(|e| panic!("{expr}: {e}"));
        assert_eq!(parsed.eval(&Fixed), expected, "{expr}");
    }

    #[test]
    fn operators() {
        check(json!([]), true);
        check(json!([["arg_n", "==", "5"]]), true);
        check(json!([["arg_n", "==", 5]]), true);
        check(json!([["arg_hex", "==", 16]]), true);
        check(json!([["http_x", "==", 5]]), false);
        check(json!([["arg_n", "5"]]), true);
        check(json!([["arg_none", "==", null]]), true);
        check(json!([["arg_n", "==", null]]), false);
        check(json!([["arg_flag", "==", true]]), true);
        check(json!([["arg_flag", "==", "true"]]), false);
        check(json!([["arg_none", "~=", "x"]]), true);
        check(json!([["http_x", "~=", 5]]), true);
        check(json!([["arg_n", ">", 4]]), true);
        check(json!([["arg_n", ">", "4"]]), true);
        check(json!([["arg_none", ">", 4]]), false);
        check(json!([["arg_none", "!", ">", 4]]), true);
        check(json!([["arg_n", "<=", 5], ["arg_n", ">=", 5]]), true);
        check(json!([["arg_n", "<", 5]]), false);
        check(json!([["http_x", "~~", "^He"]]), true);
        check(json!([["http_x", "~~", "^he"]]), false);
        check(json!([["http_x", "~*", "^he"]]), true);
        check(json!([["http_x", "IN", ["a", "Hello"]]]), true);
        check(json!([["arg_n", "in", [5]]]), false);
        check(json!([["graphql_root_fields", "has", "b"]]), true);
        check(json!([["http_x", "has", "Hello"]]), false);
        check(json!([["remote_addr", "ipmatch", ["10.0.0.0/8"]]]), true);
        check(json!([["remote_addr", "ipmatch", "10.1.2.4"]]), false);
        check(json!([["http_v6", "ipmatch", "2001:db8:0:1::/64"]]), true);
        check(json!([["http_v6", "ipmatch", "2001:db8:0:2::/64"]]), false);
        check(json!([["http_x", "ipmatch", "::/0"]]), false);
    }

    #[test]
    fn groups() {
        check(json!(["OR", ["arg_n", "==", "6"], ["arg_n", "==", "5"]]), true);
        check(json!(["!OR", ["arg_n", "==", "6"], ["arg_n", "==", "7"]]), true);
        check(json!(["and", ["arg_n", "==", "5"], ["OR", ["http_x", "==", "x"], ["arg_n", ">", 1]]]), true);
        check(json!(["!AND", ["arg_n", "==", "5"], ["http_x", "==", "Hello"]]), false);
        check(json!([[["arg_n", "==", "5"], ["http_x", "==", "Hello"]]]), true);
    }

    #[test]
    fn what_is_refused() {
        let check = |expr: Value, expected: &str| {
            assert_eq!(Expr::parse(&expr).err().map(|e| e.to_string()), Some(expected.to_owned()), "{expr}");
        };
        check(json!(["arg_n", "==", "5"]), "rule should be wrapped inside brackets");
        check(json!("x"), "rule should be wrapped inside brackets");
        check(json!(["OR", ["arg_n", "==", "5"]]), "rule too short");
        check(json!([["arg_n", "=", "5"]]), "[0]: invalid operator '='");
        check(json!([["arg_n", "not", "==", "5"]]), "[0][1]: bad 'not' expression");
        check(json!([["arg_n"]]), "[0]: invalid expression");
        check(json!([["remote_addr", "ipmatch", "x"]]), "[0]: invalid ip address: x");
        check(json!([["a", "==", 1], ["OR", ["b", "==", 1], ["c", "%", 1]]]), "[1][2]: invalid operator '%'");
    }
}
