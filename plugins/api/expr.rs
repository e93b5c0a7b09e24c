//! Conditions over variables, as `vars` of a route writes them.
//!
//! `[["arg_x", "==", "1"], ["OR", [..], [..]]]`: a list is an AND; a list that starts with `AND`,
//! `OR`, `!AND` or `!OR` combines its members. A condition is `[variable, operator, value]`,
//! negated as `[variable, "!", operator, value]`; `[variable, value]` means `==`. Source:
//! lua-resty-expr.
//!
//! | operator | holds when |
//! |---|---|
//! | `==` | equal; a number on the right makes the left one a number; never across types |
//! | `~=` | not `==`; so a variable without a value differs from every text |
//! | `>` `>=` `<` `<=` | both are numbers, or text that reads as one, in that order |
//! | `~~`, `~*` | the pattern occurs in it, `~*` without regard to case |
//! | `in` | it is one of the list, compared as by `==` but without making numbers of texts |
//! | `has` | it is a list and holds the value |
//! | `ipmatch` | it is an address in one of the networks |
//!
//! ```
//! # use lockgate_plugin::Expr;
//! # use serde_json::json;
//! let problem = Expr::parse(&json!([["arg_x", "=", "1"]])).unwrap_err();
//! assert_eq!(problem.to_string(), "[0][1]: invalid operator '='");
//! ```

#[cfg(test)]
mod tests;
mod unmet;

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use crate::network::network;
use crate::pattern::Pattern;
use crate::problem::Problem;
use crate::var::{Var, VarSource, VarValue, number};

pub use unmet::Unmet;

/// How deep groups may be nested: parsing and evaluation recurse.
const MAX_DEPTH: usize = 32;

const BRACKETS: &str = "rule should be wrapped inside brackets";
const INVALID: &str = "invalid expression";

/// A parsed condition.
#[derive(Clone, Debug)]
pub struct Expr {
    node: Node,
}

// Nearly every node is a test, so a box would only add a jump.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
enum Node {
    All(Members),
    Any(Members),
    Not(Box<Node>),
    Test { var: Var, op: Op },
}

/// The members of a list.
#[derive(Clone, Debug)]
struct Members {
    /// The position of the first one: 1 behind a word such as `OR`.
    first: usize,
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
enum Op {
    Equal(Literal),
    Compare(Order, f64),
    /// A comparison with something that is not a number, or of two tables.
    Never,
    /// The pattern, and whether the case of letters counts.
    Matches(Pattern, Case),
    In(Vec<Literal>),
    Has(Literal),
    Ip(Vec<IpNet>),
}

/// The value on the right.
#[derive(Clone, Debug)]
enum Literal {
    Nil,
    Bool(bool),
    Number(f64),
    Text(String),
    /// Lists and objects are equal to nothing.
    Table,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Counts,
    Ignored,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Greater,
    GreaterEq,
    Less,
    LessEq,
}

impl Expr {
    /// Parses a condition. `[]`, and `{}` as Lua writes it, always holds.
    ///
    /// # Errors
    /// APISIX's text; the path is the position inside the lists, such as `[0][1]`.
    pub fn parse(value: &Value) -> Result<Expr, Problem> {
        let list = match value {
            Value::Array(list) => list.as_slice(),
            Value::Object(map) if map.is_empty() => &[],
            _ => return Err(Problem::new("", BRACKETS)),
        };
        if list
            .first()
            .is_some_and(|first| !first.is_array() && combination(first).is_none())
        {
            return Err(Problem::new("", BRACKETS));
        }
        Ok(Expr {
            node: group(list, 0)?,
        })
    }

    /// Whether the condition holds. Stops at the first member that decides.
    pub fn eval(&self, source: &dyn VarSource) -> bool {
        self.node.eval(source)
    }

    /// Whether it uses a variable of which `is` holds.
    pub fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        self.node.any_var(is)
    }

    /// Whether some variable looks into the request body.
    pub fn needs_body(&self) -> bool {
        self.node.any_var(&Var::needs_body)
    }

    /// Whether some variable comes with the response.
    pub fn needs_response(&self) -> bool {
        self.node.any_var(&Var::needs_response)
    }
}

/// How a list combines its members.
struct Combination {
    negated: bool,
    any: bool,
}

fn combination(first: &Value) -> Option<Combination> {
    let (negated, any) = match first.as_str()?.to_ascii_uppercase().as_str() {
        "AND" => (false, false),
        "OR" => (false, true),
        "!AND" => (true, false),
        "!OR" => (true, true),
        _ => return None,
    };
    Some(Combination { negated, any })
}

fn group(list: &[Value], depth: usize) -> Result<Node, Problem> {
    if depth > MAX_DEPTH {
        return Err(Problem::new(
            "",
            format!("groups nested deeper than {MAX_DEPTH}"),
        ));
    }
    let combination = list.first().and_then(combination);
    if combination.is_some() && list.len() < 3 {
        return Err(Problem::new("", "rule too short"));
    }
    let first = usize::from(combination.is_some());
    let members = list.iter().enumerate().skip(first);
    let nodes = members
        .map(|(at, item)| member(item, depth + 1).map_err(|problem| below(at, problem)))
        .collect::<Result<Vec<_>, _>>()?;
    let Combination { negated, any } = combination.unwrap_or(Combination {
        negated: false,
        any: false,
    });
    let members = Members { first, nodes };
    let node = if any {
        Node::Any(members)
    } else {
        Node::All(members)
    };
    Ok(if negated {
        Node::Not(Box::new(node))
    } else {
        node
    })
}

fn member(item: &Value, depth: usize) -> Result<Node, Problem> {
    let list = item.as_array().ok_or_else(|| Problem::new("", BRACKETS))?;
    match list.first() {
        Some(first) if first.is_array() || combination(first).is_some() => group(list, depth),
        _ => condition(list),
    }
}

fn condition(list: &[Value]) -> Result<Node, Problem> {
    let (name, op_at) = match list {
        [name, _] | [name, _, _] => (name, 1),
        [name, bang, _, _] if bang.as_str() == Some("!") => (name, 2),
        [_, _, _, _] => return Err(Problem::new("[1]", "bad 'not' expression")),
        _ => return Err(Problem::new("", INVALID)),
    };
    let name = name.as_str().ok_or_else(|| Problem::new("[0]", INVALID))?;
    let var = Var::parse(name);
    let (inverted, op) = match list {
        [_, value] => (false, equal(value)),
        _ => operator(&list[op_at], &list[op_at + 1]).map_err(|(bad, message)| match bad {
            Bad::Operator => Problem::new(format!("[{op_at}]"), message),
            Bad::Value => Problem::new(format!("[{}]", op_at + 1), message),
        })?,
    };
    let test = Node::Test { var, op };
    Ok(if inverted != (op_at == 2) {
        Node::Not(Box::new(test))
    } else {
        test
    })
}

fn below(at: usize, mut problem: Problem) -> Problem {
    problem.path = format!("[{at}]{}", problem.path);
    problem
}

enum Bad {
    Operator,
    Value,
}

/// The operator, and whether its outcome is to be inverted.
fn operator(op: &Value, value: &Value) -> Result<(bool, Op), (Bad, String)> {
    let op = op
        .as_str()
        .ok_or_else(|| (Bad::Operator, INVALID.to_owned()))?
        .to_ascii_lowercase();
    let bad = |message: String| (Bad::Value, message);
    let op = match op.as_str() {
        "==" => equal(value),
        "~=" => return Ok((true, equal(value))),
        ">" => compare(Order::Greater, value),
        ">=" => compare(Order::GreaterEq, value),
        "<" => compare(Order::Less, value),
        "<=" => compare(Order::LessEq, value),
        "~~" => Op::Matches(pattern(value, "").map_err(bad)?, Case::Counts),
        "~*" => Op::Matches(pattern(value, "i").map_err(bad)?, Case::Ignored),
        "in" => match value {
            Value::Array(list) => Op::In(list.iter().map(Literal::new).collect()),
            _ => Op::Never,
        },
        "has" => Op::Has(Literal::new(value)),
        "ipmatch" => Op::Ip(networks(value).map_err(bad)?),
        _ => return Err((Bad::Operator, format!("invalid operator '{op}'"))),
    };
    Ok((false, op))
}

fn equal(value: &Value) -> Op {
    Op::Equal(Literal::new(value))
}

fn compare(order: Order, value: &Value) -> Op {
    let limit = match value {
        Value::Number(n) => n.as_f64(),
        Value::String(text) => number(text),
        _ => None,
    };
    limit.map_or(Op::Never, |limit| Op::Compare(order, limit))
}

fn pattern(value: &Value, flags: &str) -> Result<Pattern, String> {
    let number;
    let text = match value {
        Value::String(text) => text.as_str(),
        Value::Number(n) => {
            number = n.to_string();
            &number
        }
        _ => return Err("a regular expression must be a string".to_owned()),
    };
    Pattern::with_flags(text, flags).map_err(|e| format!("invalid regular expression: {e}"))
}

fn networks(value: &Value) -> Result<Vec<IpNet>, String> {
    let one = |value: &Value| -> Result<IpNet, String> {
        let text = value.as_str().ok_or("invalid ip address")?;
        network(text).ok_or_else(|| format!("invalid ip address: {text}"))
    };
    match value {
        Value::Array(list) if !list.is_empty() => list.iter().map(one).collect(),
        Value::String(_) => Ok(vec![one(value)?]),
        _ => Err("invalid ip address".to_owned()),
    }
}

impl Node {
    fn eval(&self, source: &dyn VarSource) -> bool {
        match self {
            Node::All(members) => members.nodes.iter().all(|node| node.eval(source)),
            Node::Any(members) => members.nodes.iter().any(|node| node.eval(source)),
            Node::Not(node) => !node.eval(source),
            Node::Test { var, op } => op.holds(source.var(var)),
        }
    }

    fn any_var(&self, is: &dyn Fn(&Var) -> bool) -> bool {
        match self {
            Node::All(members) | Node::Any(members) => {
                members.nodes.iter().any(|node| node.any_var(is))
            }
            Node::Not(node) => node.any_var(is),
            Node::Test { var, .. } => is(var),
        }
    }
}

impl Op {
    fn holds(&self, value: Option<VarValue<'_>>) -> bool {
        // Everything but a test for nothing needs a value.
        let Some(value) = value else {
            return matches!(self, Op::Equal(Literal::Nil));
        };
        match self {
            Op::Never => false,
            Op::Equal(Literal::Number(n)) => value.as_number() == Some(*n),
            Op::Equal(literal) => literal.is(&value),
            Op::Compare(order, limit) => value.as_number().is_some_and(|v| order.holds(v, *limit)),
            Op::Matches(pattern, _) => pattern.is_match(&value.as_text()),
            Op::In(list) => list.iter().any(|literal| literal.is(&value)),
            Op::Has(literal) => match value {
                VarValue::List(list) => list.iter().any(|item| literal.is_item(item)),
                _ => false,
            },
            Op::Ip(nets) => {
                let text = value.as_text();
                let inner = text
                    .strip_prefix('[')
                    .and_then(|text| text.strip_suffix(']'));
                let Ok(ip) = inner.unwrap_or(&text).parse::<IpAddr>() else {
                    return false;
                };
                // A network may be written for mapped addresses as well as for the plain ones.
                let plain = ip.to_canonical();
                nets.iter()
                    .any(|net| net.contains(&ip) || net.contains(&plain))
            }
        }
    }
}

impl Order {
    fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Order::Greater => value > limit,
            Order::GreaterEq => value >= limit,
            Order::Less => value < limit,
            Order::LessEq => value <= limit,
        }
    }
}

impl Literal {
    fn new(value: &Value) -> Literal {
        match value {
            Value::Null => Literal::Nil,
            Value::Bool(b) => Literal::Bool(*b),
            Value::Number(n) => n.as_f64().map_or(Literal::Table, Literal::Number),
            Value::String(text) => Literal::Text(text.clone()),
            Value::Array(_) | Value::Object(_) => Literal::Table,
        }
    }

    /// Equal without any conversion.
    fn is(&self, value: &VarValue<'_>) -> bool {
        match (self, value) {
            (Literal::Text(text), VarValue::Str(value)) => text == value,
            (Literal::Bool(true), VarValue::True) | (Literal::Bool(false), VarValue::False) => true,
            (Literal::Number(n), VarValue::Number(value)) => value.as_f64() == Some(*n),
            _ => false,
        }
    }

    /// Equal to an element of a list. Lists keep texts only, so numbers and booleans of a JSON
    /// body are compared by what they look like.
    fn is_item(&self, item: &str) -> bool {
        match self {
            Literal::Text(text) => text == item,
            Literal::Number(n) => number(item) == Some(*n),
            Literal::Bool(b) => item == if *b { "true" } else { "false" },
            Literal::Nil | Literal::Table => false,
        }
    }
}
