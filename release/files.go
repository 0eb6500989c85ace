package main

import (
	"cmp"
	"context"
	"embed"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// packaged has the files that the packages install besides the programs, and their
// scripts.
//
//go:embed packaged
var packaged embed.FS

// A file is part of an archive or a package.
type file struct {
	path   string // path with slashes; in a package, it starts at the root folder
	mode   os.FileMode
	data   []byte
	config bool // whether an upgrade keeps the changes that an administrator has made to the file
}

// documents returns the files that accompany a program in its archive: licenses, manual
// pages and completion. They have the names that man and shells look for.
func (b *builder) documents(ctx context.Context, p program, on platform) ([]file, error) {
	binary, err := b.binary(ctx, p, on)
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(b.source.dir, "LICENSE"))
	if err != nil {
		return nil, err
	}
	notices, err := noticesOf(ctx, binary)
	if err != nil {
		return nil, err
	}
	if p.name == server.name { // the server contains the console
		console, err := os.ReadFile(filepath.Join(b.source.dir, "console", "dist", "licenses.txt"))
		if err != nil {
			return nil, err
		}
		notices = append(notices, console...)
	}
	docs := []file{{path: "LICENSE", data: license}, {path: "THIRD-PARTY-LICENSES", data: notices}}
	if p.name == kube.name { // it is released only as an image, which needs no manual pages
		return docs, nil
	}
	if p.name == server.name {
		page, err := b.ask(ctx, p, "man")
		return append(docs, file{path: "man/man8/holdfastd.8", data: []byte(page)}), err
	}
	pages, err := b.clientPages(ctx)
	if err != nil {
		return nil, err
	}
	completion, err := b.completion(ctx)
	return slices.Concat(docs, pages, completion), err
}

// clientPages returns the manual pages of the client, one for each command.
func (b *builder) clientPages(ctx context.Context) (pages []file, err error) {
	dir := filepath.Join(b.work, "man")
	if _, err := b.ask(ctx, client, "man", dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		pages = append(pages, file{path: "man/man1/" + e.Name(), data: data})
	}
	return pages, nil
}

// completion returns the client's completion for each shell.
func (b *builder) completion(ctx context.Context) (scripts []file, err error) {
	for _, c := range []struct{ shell, path string }{
		{"bash", "bash-completion/completions/holdfast"},
		{"zsh", "zsh/vendor-completions/_holdfast"},
		{"fish", "fish/vendor_completions.d/holdfast.fish"},
		{"powershell", "powershell/holdfast.ps1"},
	} {
		text, err := b.ask(ctx, client, "completion", c.shell)
		if err != nil {
			return nil, err
		}
		scripts = append(scripts, file{path: c.path, data: []byte(text)})
	}
	return scripts, nil
}

// packagedFile returns a file of the folder packaged.
func packagedFile(name string) []byte {
	data, err := packaged.ReadFile(path.Join("packaged", name))
	if err != nil {
		panic(err) // the file is not in the embedded folder, which is a bug
	}
	return data
}

// sorted returns files ordered by their paths. It fills in the default mode.
func sorted(files []file) []file {
	files = slices.Clone(files)
	for i := range files {
		files[i].mode = cmp.Or(files[i].mode, 0o644)
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	return files
}
