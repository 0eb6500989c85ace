package inspect_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
)

// TestAttackRepeatedLayer: a manifest lists a small archive of a large file hundreds of times. The archive is read
// once. The result is the same as if the layers were read one by one, also if the layers in between remove files,
// replace folders by links, and link to files of the repeated layer.
func TestAttackRepeatedLayer(t *testing.T) {
	const size = 64 << 20
	zeros := file{name: "zeros", content: strings.Repeat("\x00", size)}
	module := "app/node_modules/left/package.json"
	repeated := zipped(archive(zeros, file{name: module, content: node("left", "1.0.0")},
		file{name: "lib/node_modules/right/package.json", content: node("right", "1.0.0")},
		file{name: "app/node_modules/.wh.gone"}))
	removes := zipped(archive(file{name: "app/node_modules/.wh.left"}, file{name: "usr/lib/x", content: "x"},
		file{name: "app/node_modules/gone/package.json", content: node("gone", "1.0.0")}))
	links := zipped(archive(file{name: ".wh.lib"}, file{name: "lib", kind: '2', link: "usr/lib"},
		file{name: "copy/node_modules/left/package.json", kind: '1', link: module}))

	blobs := [][]byte{repeated, removes, repeated, links}
	for range 100 {
		blobs = append(blobs, repeated)
	}
	image := layers(blobs...)
	opened := map[string]int{}
	for i, l := range image {
		image[i].Open = func(ctx context.Context) (io.ReadCloser, error) {
			opened[l.Digest]++
			return l.Open(ctx)
		}
	}
	got, err := inspect.Image(t.Context(), image, inspect.Limits{Bytes: 2 * size})
	if err != nil {
		t.Fatal(err)
	}
	for digest, n := range opened {
		if n != 1 {
			t.Errorf("the layer %s was read %d times", digest, n)
		}
	}
	if n := len(got.Layers); n != 3 || got.Layers[0].Bytes < size || got.Layers[0].Processor <= 0 {
		t.Errorf("the costs of the layers are %+v", got.Layers)
	}

	// With different digests, all layers are read.
	small := [][]byte{zipped(archive(file{name: module, content: node("left", "1.0.0")},
		file{name: "lib/node_modules/right/package.json", content: node("right", "1.0.0")},
		file{name: "app/node_modules/.wh.gone"})), removes}
	small = append(small, small[0], links, small[0])
	apart := layers(small...)
	for i := range apart {
		apart[i].Digest = strings.Repeat("x", i+1)
	}
	want, err := inspect.Image(t.Context(), apart, inspect.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	names := func(r inspect.Result) (lines []string) {
		for _, p := range r.Packages {
			lines = append(lines, p.Name+" "+p.Version)
		}
		return slices.Compact(lines) // a file that is read again is no longer the same file as its hard link
	}
	if diff := cmp.Diff(names(want), names(got)); diff != "" || len(got.Packages) == 0 {
		t.Errorf("packages (-want +got): %s", diff)
	}
}

// TestCostOfRefusedLayer checks that a layer whose reading exceeds a limit has a cost, so that it can be remembered.
func TestCostOfRefusedLayer(t *testing.T) {
	bomb := zipped(archive(file{name: "zeros", content: strings.Repeat("\x00", 64<<20)}))
	_, err := inspect.Image(t.Context(), layers(zipped(archive(file{name: "x", content: "x"})), bomb),
		inspect.Limits{Bytes: 32 << 20})
	reason, ok := err.(*inspect.NotUnderstood)
	if !ok || len(reason.Layers) != 2 || reason.Layers[1].Bytes <= 32<<20-1<<20 || reason.Processor <= 0 {
		t.Errorf("the costs are %+v", err)
	}
}
