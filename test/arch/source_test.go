package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/test/rig"
)

// goFile is one Go file of the repository, parsed with its comments.
type goFile struct {
	path      string // from the top, with slashes
	dir       string
	test      bool
	generated bool
	lines     int
	ast       *ast.File
	fset      *token.FileSet
}

// imports are the import paths of a file.
func (f goFile) imports() []string {
	var out []string
	for _, i := range f.ast.Imports {
		out = append(out, strings.Trim(i.Path.Value, `"`))
	}
	return out
}

// skipped are folders that hold nothing of ours.
var skipped = map[string]bool{".git": true, "node_modules": true, "bin": true, "holdfast-data": true}

// walk visits every file of the repository.
func walk(t *testing.T, visit func(path string, text []byte)) {
	t.Helper()
	root := rig.Root()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skipped[d.Name()] {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || d.Name() == ".git" { // a file in a worktree
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		short, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		visit(filepath.ToSlash(short), text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// goFiles are all Go files of the repository.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	var out []goFile
	walk(t, func(path string, text []byte) {
		if !strings.HasSuffix(path, ".go") {
			return
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir := path[:max(strings.LastIndexByte(path, '/'), 0)]
		out = append(out, goFile{
			path: path, dir: dir, test: strings.HasSuffix(path, "_test.go"),
			generated: ast.IsGenerated(file), lines: strings.Count(string(text), "\n"), ast: file, fset: fset,
		})
	})
	if len(out) == 0 {
		t.Fatal("no Go file found")
	}
	return out
}
