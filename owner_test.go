package holdfast_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// tableOwners returns the package that owns each table: the last line "-- owner: PACKAGE" above its CREATE TABLE in the
// schema.
func tableOwners(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("internal/store/schema/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	owners := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		owner := ""
		for line := range strings.Lines(string(text)) {
			if name, ok := strings.CutPrefix(line, "-- owner: "); ok {
				owner = strings.TrimSpace(name)
			}
			if m := createTable.FindStringSubmatch(line); m != nil {
				owners[m[1]] = owner
			}
		}
	}
	return owners
}

var (
	createTable = regexp.MustCompile(`^CREATE TABLE (\w+)`)

	// tableUse matches the name of a table after a keyword that precedes tables, and the
	// other names of a list after FROM.
	tableUse = regexp.MustCompile(`\b(FROM|JOIN|INTO|UPDATE|USING)\s+` +
		`(\w+(?:\s+(?:AS\s+)?\w+)?(?:\s*,\s*\w+(?:\s+AS\s+\w+)?)*)`)

	tableWrite = regexp.MustCompile(`\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+(\w+)`)
)

// A use is an occurrence of a table in the SQL of a package.
type use struct {
	pkg, table string
	write      bool
	position   string
}

// sqlUses returns the tables in the SQL texts of all packages below internal, without tests and the packages that only
// tests use, whose names end in "test".
func sqlUses(t *testing.T, tables map[string]string) (uses []use) {
	t.Helper()
	err := filepath.WalkDir("internal", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.HasSuffix(filepath.Dir(path), "test") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), "internal/"))
		ast.Inspect(file, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text, ok := sqlText(e)
			for _, u := range textUses(text, tables) {
				u.pkg, u.position = pkg, files.Position(n.Pos()).String()
				uses = append(uses, u)
			}
			return !ok
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return uses
}

// sqlText returns the text of a string literal, or of several strings that are joined by
// +. A part that is not a literal becomes "?".
func sqlText(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		left, first := sqlText(e.X)
		right, second := sqlText(e.Y)
		if !first {
			left = "?"
		}
		if !second {
			right = "?"
		}
		return left + right, e.Op == token.ADD && (first || second)
	}
	return "", false
}

// textUses returns the tables in an SQL text.
func textUses(text string, tables map[string]string) (uses []use) {
	written := map[string]bool{}
	for _, m := range tableWrite.FindAllStringSubmatch(text, -1) {
		written[m[1]] = true
	}
	found := map[string]bool{}
	for _, m := range tableUse.FindAllStringSubmatch(text, -1) {
		names := strings.Split(m[2], ",")
		if m[1] != "FROM" {
			names = names[:1]
		}
		for _, name := range names {
			table := strings.Fields(name)[0]
			if _, ok := tables[table]; ok && !found[table] {
				found[table] = true
				uses = append(uses, use{table: table, write: written[table]})
			}
		}
	}
	return uses
}

// TestTablesHaveOneOwner: only the package that owns a table uses it in SQL, unless
// foreignTables lists an exception.
func TestTablesHaveOneOwner(t *testing.T) {
	owners := tableOwners(t)
	for table, owner := range owners {
		if _, err := os.Stat(filepath.Join("internal", owner)); owner == "" || err != nil {
			t.Errorf("the table %s has no owner: write \"-- owner: PACKAGE\" above it in the schema", table)
		}
	}
	allowed := map[string]map[string]int{} // number of allowed statements, by package and table
	for _, x := range foreignTables {
		if x.reason == "" {
			t.Errorf("no reason for %s", x.pkg)
		}
		for _, table := range strings.Fields(x.tables) {
			if allowed[x.pkg] == nil {
				allowed[x.pkg] = map[string]int{}
			}
			allowed[x.pkg][table] = 0
		}
	}
	for _, u := range sqlUses(t, owners) {
		if owners[u.table] == u.pkg {
			continue
		}
		if _, ok := allowed[u.pkg][u.table]; ok {
			allowed[u.pkg][u.table]++
			if os.Getenv("HOLDFAST_TEST_OWNERS") != "" {
				fmt.Println(u.pkg, "uses", u.table, "of", owners[u.table], "write", u.write, u.position)
			}
			continue
		}
		t.Errorf("%s: %s uses %s, a table of %s", u.position, u.pkg, u.table, owners[u.table])
	}
	for _, pkg := range slices.Sorted(maps.Keys(allowed)) {
		for table, n := range allowed[pkg] {
			if n == 0 {
				t.Errorf("%s has an exception for %s and does not use it", pkg, table)
			}
		}
	}
}

// foreignTables are the tables that a package uses in its SQL although another package owns them.
var foreignTables = []struct{ pkg, tables, reason string }{
	{"store", "groups", "the tree of groups is a mechanism of the kernel; other packages use it through the kernel"},
	{"store", "budgets payers", "the kernel checks budgets at every commit"},
	{"store/health", "replicas revision", "the state of the database lists the processes that share it"},
	{"store/schema", "schema_needs", "a program checks before it opens the database whether it knows the schema"},
	{"store/replica", "outbox revision", "a heartbeat reads both in the statement that renews the lease"},
	{"store/outbox", "outbox", "it is the part of the kernel that reads the table in order"},
	{"store/dump", "blobs groups identities signing_keys", "a restore refuses a database in which any of them has a row"},
	{"store/recount", "blobs counters groups identity_providers manifests repo_blobs repos subscriptions trash_blobs " +
		"trash_manifests trash_repos uploads", "it compares the counters with all rows that they count"},
	{"signin/tokendb", "identities signing_keys paired_keys",
		"it belongs to iamdb and is a package of its own because of its size"},
	{"signin/scimdb", "identities", "the people of a directory and of its provider are compared in one statement"},
	{"access/grantlog", "subscriptions", "reports are for groups with a webhook; eventdb is above grantlog"},
	{"registry/gcdb", "blobs repo_blobs trash_blobs uploads repos manifest_refs trash_refs",
		"the garbage collector belongs to registrydb and is a package of its own because of its size"},
	{"registry/registrydb", "images group_images image_chunks image_sboms",
		"pushes and deletions change images in their own transaction; imagedb is above registrydb"},
	{"registry/registrydb", "follows upstream_tags",
		"pushes to a repo depend on its source, and a pull from an upstream records tags; sourcedb is above registrydb"},
	{"registry/registrydb", "retention",
		"the rules of a repo in the trash are deleted with it; retentiondb is above registrydb"},
	{"registry/imagedb", "image_news image_sboms",
		"numbering an image announces it in its transaction; findingdb is above imagedb"},
	{"registry/retentiondb", "inventory_entries", "rules keep images that run; findingdb is above retentiondb"},
}
