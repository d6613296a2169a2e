package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/driver"
)

const keysHelp = `Prints the names that keys have in actions: the first is the name of the X keysym where there is
one, then its number, then what else it is called. Names are matched in any case, and without
underscores, hyphens and spaces: PAGE_UP, PageUp and "page up" are one name.

A single character is no name but stands for itself: "a", "A", "é", "+".`

const keysExample = `  deskagent keys
  deskagent keys --json
  deskagent act '{"type":"keypress","keys":["CTRL","ALT","Delete"]}'`

func newKeys(c *command) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "keys",
		Short:   "Print the names of keys",
		Long:    keysHelp,
		Example: keysExample,
		Args:    usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return json.NewEncoder(c.out).Encode(keyRows())
			}
			table := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
			for _, row := range keyRows() {
				cells := fmt.Sprintf("%s\t%#x\t%s", row.Name, row.Keysym, strings.Join(row.Aliases, " "))
				fmt.Fprintln(table, strings.TrimSuffix(cells, "\t"))
			}
			return table.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON list instead of lines")
	return cmd
}

// keyRow is an entry of --json.
type keyRow struct {
	Name    string   `json:"name"`
	Keysym  uint32   `json:"keysym"`
	Aliases []string `json:"aliases"`
}

func keyRows() []keyRow {
	table := driver.Keys()
	rows := make([]keyRow, len(table))
	for i, key := range table {
		rows[i] = keyRow{key.Name, uint32(key.Key), append([]string{}, key.Aliases...)}
	}
	return rows
}
