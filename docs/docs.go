// Package docs contains the pages of the documentation and their pictures. The server shows them at /docs.
package docs

import "embed"

// Files has the pages (*.md) and the pictures that they show.
//
//go:embed *.md decisions/*.md */*.png */*.svg
var Files embed.FS
