package extract

import (
	"context"
	"fmt"
)

// ParseRelease parses an os-release file.
var ParseRelease = parseRelease

// RPMLines returns a line for each package in an rpm database, and a line for each of its files.
func RPMLines(ctx context.Context, name string) (lines []string, _ error) {
	err := rpmHeaders(ctx, name, func(header []byte) error {
		p, err := parseRpm(header)
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%s %d:%s-%s %s %s", p.name, p.epoch, p.version, p.release, p.arch, p.source))
		p.eachFile(func(file string) { lines = append(lines, file) })
		return nil
	})
	return lines, err
}
