package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// verb is a verb of a format; a page writes an ellipsis for what varies.
var verb = regexp.MustCompile(`%[-+# 0-9.*]*[a-zA-Z]`)

// sourceTexts returns the constant texts of the tools' Go sources, each concatenation as one text, with an ellipsis for each verb.
func sourceTexts(t *testing.T) []string {
	t.Helper()
	var texts []string
	take := func(text string) { texts = append(texts, verb.ReplaceAllString(text, "…")) }
	for _, dir := range append(slices.Clone(tools), "lib") {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				expression, ok := n.(ast.Expr)
				if !ok {
					return true
				}
				text, constant := constantText(expression)
				if constant {
					take(text)
				}
				return !constant
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

// constantText returns the text of a literal, or of a sum in which at least one part is constant, with a verb for each other part.
func constantText(e ast.Expr) (text string, constant bool) {
	switch x := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(x.Value)
		return text, x.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		if x.Op != token.ADD {
			return "", false
		}
		left, isLeft := constantText(x.X)
		right, isRight := constantText(x.Y)
		if !isLeft {
			left = "%s"
		}
		if !isRight {
			right = "%s"
		}
		return left + right, isLeft || isRight
	}
	return "", false
}

var (
	quoted = regexp.MustCompile("`([^`]+)`")
	// fieldName is a name in the ticks, as sample.pods.
	fieldName = regexp.MustCompile(`^[a-z][A-Za-z]*(\.[a-z][A-Za-z]*)*$`)
)

// isInSources reports whether a text contains what a heading quotes: a message, in which an ellipsis stands for what varies, a flag, or a
// name in the ticks.
func isInSources(quote string, texts []string) bool {
	contains := func(part string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, part) })
	}
	if fieldName.MatchString(quote) {
		return !slices.ContainsFunc(strings.Split(quote, "."), func(name string) bool {
			return !contains(`json:"`+name+`"`) && !contains(`json:"`+name+`,`) && !slices.Contains(texts, name)
		})
	}
	if flag, isFlag := strings.CutPrefix(quote, "--"); isFlag {
		return slices.Contains(texts, flag)
	}
	quote = strings.TrimRight(quote, "… ,")
	outer, inner, isWrapped := strings.Cut(quote, ": ") // an error that another one wraps has a text of its own
	return contains(quote) || isWrapped && contains(outer) && contains(inner)
}

// Each message that a heading of the page about faults quotes is one of the tools': a reader searches the page for what was printed.
func TestTroubleshootingQuotesMessages(t *testing.T) {
	page, err := os.ReadFile("../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	texts, n := sourceTexts(t), 0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "### ") {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(line, -1) {
			n++
			if !isInSources(m[1], texts) {
				t.Errorf("no tool prints %q, which is quoted in %q", m[1], strings.TrimSpace(line))
			}
		}
	}
	if n < 15 {
		t.Errorf("%d messages are quoted; want all of the page", n)
	}
	if isInSources("policy … runs, and another one needs a restart", texts) {
		t.Error("a message that no tool prints counts as one")
	}
}

// Each message of isolate that the page about kubelet quotes, with an ellipsis for what varies, is one that isolate prints.
func TestKubeletPageQuotesMessages(t *testing.T) {
	page, err := os.ReadFile("../docs/kubelet.md")
	if err != nil {
		t.Fatal(err)
	}
	fences := regexp.MustCompile("(?s)```.*?```")
	texts, n := sourceTexts(t), 0
	for _, m := range quoted.FindAllStringSubmatch(fences.ReplaceAllString(string(page), ""), -1) {
		quote := strings.Join(strings.Fields(m[1]), " ")
		if !strings.Contains(quote, " ") || !strings.Contains(quote, "…") || strings.HasPrefix(quote, "FailedCreatePodSandBox") { // kubelet's
			continue
		}
		n++
		if !isInSources(quote, texts) {
			t.Errorf("isolate does not print %q", quote)
		}
	}
	if n < 4 {
		t.Errorf("%d messages are quoted; want all of the page", n)
	}
}
