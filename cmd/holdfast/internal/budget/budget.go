// Package budget is the part of the command about limits on the resources of groups.
package budget

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	budgetspb "github.com/holdfast-dev/holdfast/gen/budgets/v1"
)

// Budgets returns the Noun for the limits of groups.
func Budgets() noun.Noun {
	return noun.Noun{
		Use: "budgets", One: "budget",
		Short: "Limit the resources of a group",
		About: "A budget limits the resources of a group and everything below it. It is identified by the name, path or\n" +
			"uid of the group. The budget of a folder is set by people who may update its parent group, and the\n" +
			"budget of an organization by the operator.",
		Message: noun.MessageOf(&budgetspb.Budget{}),
		Named:   noun.Groups,
		Upright: true,
		Fields: []noun.Field{
			limit("stored-bytes", "`BYTES` of blobs and manifests, such as 50GB"),
			limit("repos", "`NUMBER` of repos"),
			limit("identities", "`NUMBER` of identities of workloads"),
			limit("advisories", "`NUMBER` of advisories"),
			limit("webhooks", "`NUMBER` of subscriptions to events"),
			limit("groups", "`NUMBER` of groups below it"),
			limit("bindings", "`NUMBER` of role bindings"),
			limit("requests-per-second", "`NUMBER` of requests that its identities may make in a second"),
			limit("pulls-per-day", "`NUMBER` of pulls from its repos in a day"),
		},
		Columns: output.Columns(output.PathOf("group", "uid"), used("storedBytes"), used("repos"), used("identities"),
			used("advisories"), used("webhooks"), used("groups"), used("bindings")),
		Wide: output.Columns("uid", "requests=requestsPerSecond", "pulls=pullsPerDay", "updateTime"),
	}
}

// used returns a column with the use of a limited resource: 3 of 10, or 3 if there is no
// limit.
func used(name string) output.Column {
	return output.Text(name, func(b *budgetspb.Budget) string {
		u, m := b.GetUsage().ProtoReflect(), b.ProtoReflect()
		text := u.Get(u.Descriptor().Fields().ByJSONName(name)).String()
		if fd := m.Descriptor().Fields().ByJSONName(name); m.Has(fd) {
			text += " of " + m.Get(fd).String()
		}
		return text
	})
}

// limit returns a flag that sets or removes a limit.
func limit(flag, help string) noun.Field {
	return noun.Field{
		Flag: flag, Help: help + ", or unlimited",
		Read: func(m protoreflect.Message, texts []string) error {
			fd := m.Descriptor().Fields().ByName(protoreflect.Name(strings.ReplaceAll(flag, "-", "_")))
			if texts[0] == "unlimited" {
				m.Clear(fd)
				return nil
			}
			n, err := parseAmount(texts[0])
			if err == nil {
				m.Set(fd, protoreflect.ValueOfInt64(n))
			}
			return err
		},
	}
}

// units are the units of bytes that may follow a number.
var units = []struct {
	suffix string
	factor uint64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
}

// parseAmount parses a number with an optional unit of bytes.
func parseAmount(text string) (int64, error) {
	digits, factor := text, uint64(1)
	for _, u := range units {
		if number, ok := strings.CutSuffix(text, u.suffix); ok {
			digits, factor = strings.TrimSpace(number), u.factor
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	high, low := bits.Mul64(n, factor)
	if err != nil || high != 0 || int64(low) < 0 {
		return 0, fmt.Errorf("%q is not a number like 200 or 50GB, nor unlimited", text)
	}
	return int64(low), nil
}
