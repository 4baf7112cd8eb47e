package ctl

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"unicode/utf8"
)

// table is what a listing found.
type table struct {
	columns []string
	rows    [][]any
}

// formatters write a table; header is whether its first line names the columns.
var formatters = map[string]func(w *bufio.Writer, t table, header bool) error{
	"table":        writeTable,
	"pretty_table": writePretty,
	"csv":          writeCSV,
	"json":         writeRows,
}

func machineReadable(formatter string) bool { return formatter == "csv" || formatter == "json" }

// print writes a table in the form that was asked for.
func (r *run) print(t table) error {
	w := bufio.NewWriter(r.Out)
	if err := formatters[r.formatter](w, t, !r.silent && !r.noHeaders); err != nil {
		return failf(ExitSoftware, "Error: %v", err)
	}
	if err := w.Flush(); err != nil {
		return failf(ExitSoftware, "Error: %v", err)
	}
	return nil
}

// writeTable separates columns with tabs, as rabbitmqctl does. An empty table has no header either.
func writeTable(w *bufio.Writer, t table, header bool) error {
	if header && len(t.rows) > 0 {
		w.WriteString(strings.Join(t.columns, "\t") + "\n")
	}
	for _, row := range t.rows {
		for i, cell := range row {
			if i > 0 {
				w.WriteByte('\t')
			}
			w.WriteString(text(cell))
		}
		w.WriteByte('\n')
	}
	return nil
}

func writeCSV(w *bufio.Writer, t table, header bool) error {
	line := func(cells []string) {
		for i, cell := range cells {
			if i > 0 {
				w.WriteByte(',')
			}
			w.WriteString(`"` + strings.ReplaceAll(cell, `"`, `""`) + `"`)
		}
		w.WriteByte('\n')
	}
	if header && len(t.rows) > 0 {
		line(t.columns)
	}
	for _, row := range t.rows {
		line(texts(row))
	}
	return nil
}

func texts(row []any) []string {
	cells := make([]string, len(row))
	for i, cell := range row {
		cells[i] = text(cell)
	}
	return cells
}

// writePretty draws a frame around the table.
func writePretty(w *bufio.Writer, t table, header bool) error {
	var lines [][]string
	if header {
		lines = append(lines, t.columns)
	}
	for _, row := range t.rows {
		lines = append(lines, texts(row))
	}
	if len(lines) == 0 {
		return nil
	}
	widths := make([]int, len(t.columns))
	for _, cells := range lines {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	rule := func(left, middle, right string) {
		for i, width := range widths {
			w.WriteString(pick(i == 0, left, middle) + strings.Repeat("─", width+2))
		}
		w.WriteString(right + "\n")
	}
	rule("┌", "┬", "┐")
	for i, cells := range lines {
		for j, cell := range cells {
			w.WriteString("│ " + cell + strings.Repeat(" ", widths[j]-utf8.RuneCountInString(cell)+1))
		}
		w.WriteString("│\n")
		if header && i == 0 && len(lines) > 1 {
			rule("├", "┼", "┤")
		}
	}
	rule("└", "┴", "┘")
	return nil
}

func pick(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// writeRows writes an array with one object a line, its keys in the order of the columns.
func writeRows(w *bufio.Writer, t table, _ bool) error {
	w.WriteString("[\n")
	for i, row := range t.rows {
		w.WriteString(pick(i == 0, "", ",") + "{")
		for j, cell := range row {
			if cell == nil {
				cell = ""
			}
			value, err := json.Marshal(cell)
			if err != nil {
				return err
			}
			w.WriteString(pick(j == 0, "", ",") + `"` + t.columns[j] + `":`)
			w.Write(value)
		}
		w.WriteString("}\n")
	}
	w.WriteString("]\n")
	return nil
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}
