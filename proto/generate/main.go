// Command generate turns the .proto files of this repository into everything
// under gen: Go types, gRPC services and the OpenAPI document.
// Run it from the root of the module:
//
//	go run ./proto/generate
//
// It needs neither protoc nor buf. The plugins are tools of this module, so
// go.mod says which versions wrote gen.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/pluginpb"
)

// inGen is the parameter of plugins that makes names of files relative to gen.
const inGen = "module=github.com/holdfast-dev/holdfast/gen"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, "proto", "gen")
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// run generates code from the .proto files below src and writes it to dst. It
// removes all other files from dst. If it fails, dst does not change.
func run(ctx context.Context, src, dst string) error {
	api, err := compile(ctx, src)
	if err != nil {
		return err
	}
	files := tree{}
	for _, name := range []string{"go", "go-grpc"} {
		out, err := plugin(ctx, name, inGen, api)
		if err != nil {
			return err
		}
		maps.Copy(files, out)
	}
	parts, err := plugin(ctx, "openapiv3", "", api)
	if err != nil {
		return err
	}
	files["openapi/openapi.json"], err = document(parts, api.open)
	if err != nil {
		return fmt.Errorf("openapi: %w", err)
	}
	files["openapi/openapi.go"] = []byte(openapiGo)
	return files.writeTo(dst)
}

// plugin runs one of the module's protoc plugins on the API and returns the files
// it generates.
func plugin(ctx context.Context, name, parameter string, api *definition) (tree, error) {
	in, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: api.paths,
		Parameter:      proto.String(parameter),
		ProtoFile:      api.files,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	cmd := exec.CommandContext(ctx, "go", "tool", "protoc-gen-"+name)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &resp); err != nil {
		return nil, fmt.Errorf("%s: read its response: %w", name, err)
	}
	if resp.Error != nil {
		return nil, fmt.Errorf("%s: %s", name, resp.GetError())
	}
	files := tree{}
	for _, f := range resp.File {
		files[f.GetName()] = []byte(f.GetContent())
	}
	return files, nil
}

// A tree is the files of a directory: their contents by slash-separated path.
type tree map[string][]byte

// readTree reads all files below dir. If dir does not exist, there are none.
func readTree(dir string) (tree, error) {
	files := tree{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == dir {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(rel)], err = os.ReadFile(path)
		return err
	})
	return files, err
}

// writeTo writes the files to dir, and removes all others from it. It does not
// write a file that is unchanged, so that nothing is rebuilt because of it.
func (t tree) writeTo(dir string) error {
	old, err := readTree(dir)
	if err != nil {
		return err
	}
	for path := range old {
		if _, ok := t[path]; ok {
			continue
		}
		if err := os.Remove(filepath.Join(dir, path)); err != nil {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(t)) {
		if was, ok := old[path]; ok && bytes.Equal(was, t[path]) {
			continue
		}
		name := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, t[path], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// protoFiles returns the paths of the .proto files below dir, relative to it.
func protoFiles(dir string) ([]string, error) {
	files, err := readTree(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(path, ".proto") {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no .proto files below %s", dir)
	}
	return paths, nil
}
