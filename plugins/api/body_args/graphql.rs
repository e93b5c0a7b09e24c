//! Just enough of GraphQL to tell the first operation of a document.

/// The longest document that is looked at, in bytes. Source: APISIX's `graphql.max_size`.
const MAX_DOCUMENT: usize = 1 << 20;
/// How deep selections may nest.
const MAX_DEPTH: usize = 128;

/// The first operation of a document.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Operation {
    /// `query`, `mutation` or `subscription`.
    pub(crate) kind: String,
    /// Its name; empty when anonymous.
    pub(crate) name: String,
    /// The fields it selects, aliases resolved.
    pub(crate) root_fields: Vec<String>,
}

/// Finds the first operation; `None` when there is none or the text is not GraphQL.
pub(crate) fn first_operation(text: &str) -> Option<Operation> {
    if text.len() > MAX_DOCUMENT {
        return None;
    }
    let mut tokens = Tokens {
        text: text.as_bytes(),
        at: 0,
    };
    loop {
        match tokens.next()? {
            Token::Mark(b'{') => {
                let root_fields = selection(&mut tokens)?;
                return Some(Operation {
                    kind: "query".into(),
                    name: String::new(),
                    root_fields,
                });
            }
            Token::Word(kind @ ("query" | "mutation" | "subscription")) => {
                let mut operation = Operation {
                    kind: kind.into(),
                    ..Operation::default()
                };
                let mut next = tokens.next()?;
                if let Token::Word(name) = next {
                    operation.name = name.into();
                    next = tokens.next()?;
                }
                // Variables and directives before the selection.
                loop {
                    match next {
                        Token::Mark(b'{') => break,
                        Token::Mark(b'(') => skip(&mut tokens, b'(', b')')?,
                        _ => {}
                    }
                    next = tokens.next()?;
                }
                operation.root_fields = selection(&mut tokens)?;
                return Some(operation);
            }
            // A fragment or another definition: skip its body.
            Token::Word(_) => loop {
                match tokens.next()? {
                    Token::Mark(b'{') => {
                        skip(&mut tokens, b'{', b'}')?;
                        break;
                    }
                    Token::Mark(b'(') => skip(&mut tokens, b'(', b')')?,
                    _ => {}
                }
            },
            _ => return None,
        }
    }
}

/// The fields of a selection whose `{` was read.
fn selection(tokens: &mut Tokens<'_>) -> Option<Vec<String>> {
    let mut fields: Vec<String> = Vec::new();
    let mut alias = false;
    loop {
        match tokens.next()? {
            Token::Mark(b'}') => return Some(fields),
            Token::Mark(b'{') => skip(tokens, b'{', b'}')?,
            Token::Mark(b'(') => skip(tokens, b'(', b')')?,
            Token::Mark(b':') => alias = true,
            Token::Mark(b'@') => {
                tokens.next()?;
            }
            Token::Mark(b'.') => {
                // `...Name`, `... on Type {..}`, `... @directive {..}`: what it selects is not a
                // field of the root by name.
                while let Some(Token::Mark(b'.')) = tokens.peek() {
                    tokens.next()?;
                }
                if let Some(Token::Word(word)) = tokens.peek() {
                    tokens.next()?;
                    if word == "on" {
                        tokens.next()?;
                    }
                }
            }
            Token::Word(name) => {
                if alias {
                    fields.pop();
                    alias = false;
                }
                fields.push(name.to_owned());
            }
            _ => {}
        }
    }
}

fn skip(tokens: &mut Tokens<'_>, open: u8, close: u8) -> Option<()> {
    let mut depth = 1;
    while depth > 0 {
        match tokens.next()? {
            Token::Mark(b) if b == open => depth += 1,
            Token::Mark(b) if b == close => depth -= 1,
            _ => {}
        }
        if depth > MAX_DEPTH {
            return None;
        }
    }
    Some(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Mark(u8),
    Text,
}

struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Tokens<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        Tokens {
            text: self.text,
            at: self.at,
        }
        .next()
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let rest = self.text.get(self.at..)?;
            let b = *rest.first()?;
            if b.is_ascii_whitespace() || b == b',' {
                self.at += 1;
            } else if b == b'#' {
                self.at += rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
            } else if b.is_ascii_alphanumeric() || b == b'_' {
                let word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
                let len = rest.iter().position(|b| !word(b)).unwrap_or(rest.len());
                self.at += len;
                return std::str::from_utf8(&rest[..len]).ok().map(Token::Word);
            } else if b == b'"' {
                let block = rest.starts_with(b"\"\"\"");
                let mut i = if block { 3 } else { 1 };
                loop {
                    let left = rest.get(i..)?;
                    match left.first()? {
                        b'\\' => i += 2,
                        _ if block && left.starts_with(b"\"\"\"") => break i += 3,
                        b'"' if !block => break i += 1,
                        _ => i += 1,
                    }
                }
                self.at += i;
                return Some(Token::Text);
            } else {
                self.at += 1;
                return Some(Token::Mark(b));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(&str, &str, &[&str])>) {
        let got = first_operation(text);
        let got = got.as_ref().map(|o| {
            (
                o.kind.as_str(),
                o.name.as_str(),
                o.root_fields.iter().map(String::as_str).collect::<Vec<_>>(),
            )
        });
        let expected = expected.map(|(kind, name, fields)| (kind, name, fields.to_vec()));
        assert_eq!(got, expected, "{text}");
    }

    #[test]
    fn first_operations() {
        check("{ a b { c } }", Some(("query", "", &["a", "b"])));
        check(
            "query Q($x: Int = 1) @d { a(x: $x, y: {z: \"}\"}) alias: b }",
            Some(("query", "Q", &["a", "b"])),
        );
        check("# hi\nmutation { m }", Some(("mutation", "", &["m"])));
        check(
            "fragment F on T { x } query { ...F a ... on T { y } }",
            Some(("query", "", &["a"])),
        );
        check(
            "subscription S { s } query { q }",
            Some(("subscription", "S", &["s"])),
        );
        check("query {", None);
        check("", None);
        check("{ a(", None);
        check(
            "{ ... { x } a ... @include(if: true) { y } b @skip(if: $n) }",
            Some(("query", "", &["a", "b"])),
        );
        check(
            "query ($x: [Int!]! = [1, 2]) @d(a: {b: 1}) { a }",
            Some(("query", "", &["a"])),
        );
        check(
            "{ a(x: \"\"\"\"}\\\"\"\"\"\"\") b }",
            Some(("query", "", &["a", "b"])),
        );
        check(&format!("{{ {} }}", "a { ".repeat(200)), None);
        check("\"unclosed", None);
    }
}
