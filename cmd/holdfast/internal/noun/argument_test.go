package noun

import (
	"testing"

	"github.com/spf13/cobra"
)

// TestExplainArguments: an error about the number of arguments names them.
func TestExplainArguments(t *testing.T) {
	tests := []struct {
		use   string
		check cobra.PositionalArgs
		args  []string
		want  string
	}{
		{"get GROUP", cobra.ExactArgs(1), nil, "GROUP is missing"},
		{"can IDENTITY CAPABILITY PLACE", cobra.ExactArgs(3), nil, "IDENTITY, CAPABILITY and PLACE are missing"},
		{"can IDENTITY CAPABILITY PLACE", cobra.ExactArgs(3), []string{"me"}, "CAPABILITY and PLACE are missing"},
		{"delete UID...", cobra.MinimumNArgs(1), nil, "UID is missing"},
		{"request ROLE --on GROUP --for DURATION", cobra.ExactArgs(1), nil, "ROLE is missing"},
		{"history REPO[:TAG]", cobra.ExactArgs(1), nil, "REPO[:TAG] is missing"},
		{"list", cobra.NoArgs, []string{"dev"}, `unexpected argument "dev"`},
		{"tree [GROUP]", cobra.MaximumNArgs(1), []string{"a", "b"}, `unexpected argument "b"`},
		{"get GROUP", cobra.ExactArgs(1), []string{"a", "b"}, `unexpected argument "b"`},
		{"get GROUP", cobra.ExactArgs(1), []string{"a"}, ""},
		{"delete UID...", cobra.MinimumNArgs(1), []string{"a", "b"}, ""},
	}
	for _, tt := range tests {
		cmd := &cobra.Command{Use: tt.use, Args: tt.check}
		ExplainArguments(cmd)
		got := ""
		if err := cmd.Args(cmd, tt.args); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s with %q: %q, want %q", tt.use, tt.args, got, tt.want)
		}
	}
}
