package layer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/layer"
)

// texts is a Visitor that keeps the content of files with the extension .txt.
type texts struct{}

func (texts) Wants(path string, _, _ int64) bool { return strings.HasSuffix(path, ".txt") }

func (texts) WantsLink(path string) bool { return strings.Contains(path, "wanted/") }

func (texts) Visit(_ context.Context, f *layer.File, before string) (string, bool, error) {
	f.Head()
	content, err := f.Bytes(1000)
	if err != nil {
		return "", false, nil
	}
	if before != "" {
		before = "<" + before
	}
	return fmt.Sprintf("%s@%d%s", content, f.Layer, before), string(content) != "nothing", nil
}

var limits = layer.Limits{Bytes: 1 << 20, Entries: 100, Kept: 50, InMemory: 1000, Spool: 10_000}

// archive makes a layer from lines: "path content" for a file, "path ->target" for a symbolic link, "path =>target" for
// a hard link, "path/" for a folder, "path |" for a pipe.
func archive(lines ...string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, line := range lines {
		name, content, _ := strings.Cut(line, " ")
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}
		if target, ok := strings.CutPrefix(content, "->"); ok {
			h.Typeflag, h.Linkname, content = tar.TypeSymlink, target, ""
		}
		if target, ok := strings.CutPrefix(content, "=>"); ok {
			h.Typeflag, h.Linkname, content = tar.TypeLink, target, ""
		}
		if content == "|" {
			h.Typeflag, content = tar.TypeFifo, ""
		}
		if strings.HasSuffix(name, "/") {
			h.Typeflag = tar.TypeDir
		}
		h.Size = int64(len(content))
		if err := errors.Join(w.WriteHeader(h), second(io.WriteString(w, content))); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func second(_ int, err error) error { return err }

func kept(s *layer.Stack[string]) (paths []string) {
	s.Each(func(path string, value string) { paths = append(paths, path+" "+value) })
	return paths
}

func TestLayers(t *testing.T) {
	base := []string{"a/x.txt X", "a/b/y.txt Y", "usr/lib/z.txt Z", "lib ->usr/lib"}
	tests := map[string]struct{ upper, want []string }{
		"nothing":             {nil, []string{"a/b/y.txt Y@0", "a/x.txt X@0", "usr/lib/z.txt Z@0"}},
		"replaced":            {[]string{"a/x.txt N"}, []string{"a/b/y.txt Y@0", "a/x.txt N@1<X@0", "usr/lib/z.txt Z@0"}},
		"replaced by nothing": {[]string{"a/x.txt nothing"}, []string{"a/b/y.txt Y@0", "usr/lib/z.txt Z@0"}},
		"replaced by a pipe":  {[]string{"a/x.txt |"}, []string{"a/b/y.txt Y@0", "usr/lib/z.txt Z@0"}},
		"emptied":             {[]string{"a/x.txt "}, []string{"a/b/y.txt Y@0", "usr/lib/z.txt Z@0"}},
		"removed":             {[]string{"a/.wh.x.txt"}, []string{"a/b/y.txt Y@0", "usr/lib/z.txt Z@0"}},
		"a folder removed":    {[]string{".wh.a"}, []string{"usr/lib/z.txt Z@0"}},
		"a folder emptied":    {[]string{"a/.wh..wh..opq", "a/n.txt N"}, []string{"a/n.txt N@1", "usr/lib/z.txt Z@0"}},
		"emptied, in any order": {[]string{"a/n.txt N", "a/.wh..wh..opq"},
			[]string{"a/n.txt N@1", "usr/lib/z.txt Z@0"}},
		"removed and new": {[]string{"a/x.txt N", "a/.wh.x.txt"}, []string{"a/b/y.txt Y@0", "a/x.txt N@1<X@0",
			"usr/lib/z.txt Z@0"}},
		"the root emptied":     {[]string{".wh..wh..opq"}, nil},
		"a file over a folder": {[]string{"a x"}, []string{"usr/lib/z.txt Z@0"}},
		"a link over a folder": {[]string{"a ->usr"}, []string{"usr/lib/z.txt Z@0"}},
		"a folder over a file": {[]string{"a/x.txt/"}, []string{"a/b/y.txt Y@0", "usr/lib/z.txt Z@0"}},
		"a folder over one":    {[]string{"a/"}, []string{"a/b/y.txt Y@0", "a/x.txt X@0", "usr/lib/z.txt Z@0"}},
		"dots":                 {[]string{"./a/../a/./.wh.x.txt"}, []string{"a/b/y.txt Y@0", "usr/lib/z.txt Z@0"}},
		"above the root": {[]string{"../../a/x.txt N"}, []string{"a/b/y.txt Y@0", "a/x.txt N@1<X@0",
			"usr/lib/z.txt Z@0"}},
		"absolute":            {[]string{"/a/x.txt N"}, []string{"a/b/y.txt Y@0", "a/x.txt N@1<X@0", "usr/lib/z.txt Z@0"}},
		"through a link":      {[]string{"lib/z.txt N"}, []string{"a/b/y.txt Y@0", "a/x.txt X@0", "usr/lib/z.txt N@1<Z@0"}},
		"removed through one": {[]string{"lib/.wh.z.txt"}, []string{"a/b/y.txt Y@0", "a/x.txt X@0"}},
		"the link replaced": {[]string{"lib/", "lib/n.txt N"}, []string{"a/b/y.txt Y@0", "a/x.txt X@0", "lib/n.txt N@1",
			"usr/lib/z.txt Z@0"}},
		"twice": {[]string{"n.txt 1", "n.txt 2"}, []string{"a/b/y.txt Y@0", "a/x.txt X@0", "n.txt 2@1",
			"usr/lib/z.txt Z@0"}},
		"hard links": {[]string{"n.txt N", "m.txt =>n.txt", "l.txt =>a/x.txt", "k.txt =>none"},
			[]string{"a/b/y.txt Y@0", "a/x.txt X@0", "l.txt X@0", "m.txt N@1", "n.txt N@1", "usr/lib/z.txt Z@0"}},
		"circles": {[]string{"p ->q", "q ->p", "p/n.txt N", "r ->r/r", "r/m.txt M", "s ->/", "s/s/o.txt O"},
			[]string{"a/b/y.txt Y@0", "a/x.txt X@0", "o.txt O@1", "p/n.txt N@1", "r/m.txt M@1", "usr/lib/z.txt Z@0"}},
		"whiteouts of nothing": {[]string{".wh.", "a/.wh..", "a/.wh...", ".wh..wh.plnk"}, []string{"a/b/y.txt Y@0",
			"a/x.txt X@0", "usr/lib/z.txt Z@0"}},
		"too long for a visit": {[]string{"n.txt " + strings.Repeat("x", 1001)}, []string{"a/b/y.txt Y@0", "a/x.txt X@0",
			"usr/lib/z.txt Z@0"}},
		"too deep": {[]string{strings.Repeat("d/", 200) + "n.txt N"}, []string{"a/b/y.txt Y@0", "a/x.txt X@0",
			"usr/lib/z.txt Z@0"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := layer.New(limits, texts{})
			defer s.Close()
			for _, l := range [][]string{base, tt.upper} {
				if err := s.Add(t.Context(), bytes.NewReader(archive(l...))); err != nil {
					t.Fatal(err)
				}
			}
			if got := kept(s); !slices.Equal(got, tt.want) {
				t.Errorf("kept %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestGet(t *testing.T) {
	s := layer.New(limits, texts{})
	defer s.Close()
	if err := s.Add(t.Context(), bytes.NewReader(archive("usr/lib/z.txt Z", "lib ->usr/lib", "etc/z.txt ->../lib/y.txt",
		"usr/lib/y.txt ->/usr/lib/z.txt", "p.txt ->q.txt", "q.txt ->p.txt", "up.txt ->../../../usr/lib/z.txt"))); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]string{
		"usr/lib/z.txt": "Z@0", "lib/z.txt": "Z@0", "etc/z.txt": "Z@0", "up.txt": "Z@0", "p.txt": "", "none": "",
		"usr/lib": "",
	} {
		if got, _ := s.Get(p); got != want {
			t.Errorf("Get(%s) = %q, want %q", p, got, want)
		}
	}
}

func TestLimits(t *testing.T) {
	var many []string
	for i := range 60 {
		many = append(many, fmt.Sprintf("%d.txt N", i))
	}
	for name, l := range map[string]layer.Limits{
		"bytes":   {Bytes: 10_000, Entries: 100, Kept: 100},
		"entries": {Bytes: 1 << 20, Entries: 59, Kept: 100},
		"kept":    {Bytes: 1 << 20, Entries: 100, Kept: 59},
	} {
		s := layer.New(l, texts{})
		if err := s.Add(t.Context(), bytes.NewReader(archive(many...))); !errors.Is(err, layer.ErrLimit) {
			t.Errorf("%s: error = %v", name, err)
		}
	}
}

// FuzzAdd reads any bytes as two layers, and checks that the paths of files with a value are clean.
func FuzzAdd(f *testing.F) {
	f.Add(archive("a/x.txt X", "lib ->usr/lib"), archive("lib/.wh.x.txt", "a/.wh..wh..opq", "b.txt =>a/x.txt"))
	f.Add([]byte{0x1f, 0x8b}, []byte{0x28, 0xb5, 0x2f, 0xfd})
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		s := layer.New(limits, texts{})
		defer s.Close()
		for _, blob := range [][]byte{lower, upper} {
			if err := s.Add(t.Context(), bytes.NewReader(blob)); err != nil {
				if !errors.Is(err, layer.ErrLimit) && !errors.Is(err, layer.ErrFormat) {
					t.Fatal(err)
				}
				return
			}
		}
		s.Each(func(path string, _ string) {
			for part := range strings.SplitSeq(path, "/") {
				if part == "" || part == "." || part == ".." {
					t.Fatalf("a file at %q", path)
				}
			}
			s.Get(path)
		})
	})
}

// TestHardLinks checks that a hard link with a wanted name has the content of a file with another name, in any order,
// when the layers are read again.
func TestHardLinks(t *testing.T) {
	lines := []string{"store/0 zero", "app/a.txt =>store/0", "app/b.txt =>store/0", "app/c.txt =>store/1", "store/1 one",
		"app/d.txt =>none", "app/e.log =>store/0", "app/f.txt =>app/g.txt"}
	blobs := [][]byte{archive("x.txt X"), archive(lines...), archive("app/.wh.b.txt", "store/0 other")}
	var unread []layer.HardLink
	for round := range 2 {
		s := layer.New(limits, texts{})
		defer s.Close()
		if round == 1 {
			s.Read(unread)
		}
		for _, b := range blobs {
			if err := s.Add(t.Context(), bytes.NewReader(b)); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{"x.txt X@0"}
		if round == 0 {
			if unread = s.Unread(); len(unread) != 4 {
				t.Errorf("unread = %v", unread)
			}
		} else {
			want = []string{"app/a.txt zero@1", "app/c.txt one@1", "x.txt X@0"}
		}
		if got := kept(s); !slices.Equal(got, want) {
			t.Errorf("round %d: %v, want %v", round, got, want)
		}
	}
}

// TestLinks checks that wanted symbolic links are known at any depth, and lead to their targets.
func TestLinks(t *testing.T) {
	s := layer.New(limits, texts{})
	defer s.Close()
	for _, b := range [][]byte{archive("a/b/c/d/e/f/wanted/l ->../../g", "a/b/c/d/e/f/wanted/gone ->x",
		"a/b/c/d/e/other ->x", "wanted/circle ->circle"), archive("a/b/c/d/e/f/wanted/.wh.gone")} {
		if err := s.Add(t.Context(), bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, p := range s.Links() {
		got = append(got, p+" "+s.Follow(p))
	}
	if want := []string{"a/b/c/d/e/f/wanted/l a/b/c/d/e/g", "wanted/circle "}; !slices.Equal(got, want) {
		t.Errorf("links = %q, want %q", got, want)
	}
}
