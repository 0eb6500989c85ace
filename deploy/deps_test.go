package deploy_test

import (
	_ "github.com/compose-spec/compose-go/v2/cli"
	_ "github.com/prometheus/prometheus/promql/parser"
)
